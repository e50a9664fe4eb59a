package main

import (
	"github.com/anishathalye/porcupine"
)

// reading is one message as one group sees it: the histories of two of them are judged apart.
type reading struct{ group, id string }

type delivery struct {
	reading
	topic    string
	attempt  int
	follower bool
}

type partitions struct {
	h         *history
	clients   map[string]int
	sends     map[string][]porcupine.Operation // by id
	topics    map[string]string                // by id
	ops       map[reading][]porcupine.Operation
	handles   map[string]delivery
	hidden    map[[2]string][]*call // group, topic: pops without an answer
	groups    map[string]string     // id to message group, of FIFO topics
	complaint []string              // what no model is needed for
}

func partition(h *history) *partitions {
	p := &partitions{h: h, clients: map[string]int{}, sends: map[string][]porcupine.Operation{},
		topics: map[string]string{}, ops: map[reading][]porcupine.Operation{}, handles: map[string]delivery{},
		hidden: map[[2]string][]*call{}, groups: map[string]string{}}
	for _, c := range h.calls {
		if c.kind == "send" || c.kind == "settle" {
			p.addSend(c)
		}
	}
	first := firstTries(h)
	for _, c := range h.calls {
		if c.kind == "pop" {
			p.addPop(c, first)
		}
	}
	for _, c := range h.calls {
		switch c.kind {
		case "ack":
			p.addAck(c)
		case "change":
			p.addChanges(c)
		}
	}
	for _, c := range p.settled() {
		p.addSettle(c)
	}
	p.addEnds()
	return p
}

// operation is a call as Porcupine takes it. One without an answer is open-ended: it may happen at any later time.
func (p *partitions) operation(c *call, e *event) porcupine.Operation {
	if _, known := p.clients[c.client]; !known {
		p.clients[c.client] = len(p.clients)
	}
	returned := c.returned
	if c.unknown() {
		returned = never
	}
	e.h = p.h
	return porcupine.Operation{ClientId: p.clients[c.client], Input: e, Call: c.called, Return: returned}
}

func (p *partitions) addSend(c *call) {
	if c.how == "refused" {
		return
	}
	for i, id := range c.asked.IDs {
		e := &event{what: "send", unknown: c.unknown(), at: nowhere, duplicate: c.told.Duplicate}
		if c.ok() {
			if i < len(c.told.Codes) && c.told.Codes[i] != 0 {
				continue
			}
			e.at = position{number(c.told.Results[i][0]), number(c.told.Results[i][1])}
		}
		p.topics[id], p.groups[id] = c.asked.Topic, c.asked.MessageGroup
		p.sends[id] = append(p.sends[id], p.operation(c, e))
	}
}

type try struct{ client, attempt string }

// firstTries: a pop that is repeated with its attempt id may give what its first try leased.
func firstTries(h *history) map[try]int64 {
	first := map[try]int64{}
	for _, c := range h.calls {
		key := try{c.client, c.asked.AttemptID}
		if _, known := first[key]; c.kind == "pop" && key.attempt != "" && !known {
			first[key] = c.called
		}
	}
	return first
}

func (p *partitions) addPop(c *call, first map[try]int64) {
	if c.unknown() {
		key := [2]string{c.asked.Group, c.asked.Topic}
		p.hidden[key] = append(p.hidden[key], c)
	}
	if !c.ok() {
		return
	}
	seen := map[string]bool{} // message groups of this pop
	for _, row := range c.told.Rows {
		id, handle, attempt := row[0].(string), row[1].(string), number(row[2])
		if known, again := p.handles[handle]; again {
			if !c.told.Replay || known.id != id || known.attempt != attempt {
				p.complaint = append(p.complaint, "handle "+handle+" was issued twice")
			}
			continue
		}
		group := p.groups[id]
		one := delivery{reading{c.asked.Group, id}, c.asked.Topic, attempt, group != "" && seen[group]}
		seen[group] = true
		p.handles[handle] = one
		e := &event{what: "deliver", handle: handle, attempt: attempt, from: c.told.PoppedMs, to: c.told.UntilMs,
			at: position{number(row[3]), number(row[4])}, intact: row[5].(bool), follower: one.follower,
			max: p.max(c.asked.Group)}
		op := p.operation(c, e)
		if c.told.Replay {
			op.Call = min(op.Call, first[try{c.client, c.asked.AttemptID}])
		}
		p.ops[one.reading] = append(p.ops[one.reading], op)
	}
}

// touch adds a call on one handle to the message that the handle names.
func (p *partitions) touch(c *call, handle string, code int, e *event) {
	one, known := p.handles[handle]
	if !known || c.how == "refused" {
		return
	}
	e.handle, e.unknown, e.max = handle, c.unknown(), p.max(one.group)
	e.from, e.to = p.h.wallMs(c.called), p.h.wallMs(c.returned)
	e.lapsed = code != 0
	p.ops[one.reading] = append(p.ops[one.reading], p.operation(c, e))
}

func (p *partitions) addAck(c *call) {
	for i, handle := range c.asked.Handles {
		code := 0
		if c.ok() {
			code = c.told.Codes[i]
		}
		p.touch(c, handle, code, &event{what: "ack"})
	}
}

// settled makes one call of all tries of a settle, which are one request. If none was answered, what it sent tells
// whether its acks happened: both or neither.
func (p *partitions) settled() []*call {
	type request struct {
		producer string
		number   uint64
	}
	merged, all := map[request]*call{}, []*call{}
	for _, c := range p.h.calls {
		key := request{c.asked.Producer, c.asked.Number}
		if c.kind != "settle" || c.how == "refused" {
			continue
		}
		known := merged[key]
		if known == nil {
			copied := *c
			merged[key], all = &copied, append(all, &copied)
		} else if c.ok() && !known.ok() {
			known.how, known.returned = "ok", c.returned
		}
	}
	return all
}

func (p *partitions) addSettle(c *call) {
	must := 0
	if c.unknown() && !p.h.dropping {
		must = -1
		for _, id := range c.asked.IDs {
			if len(p.h.stored[c.asked.Topic][id]) > 0 {
				must = 1
			}
		}
	}
	for _, handle := range c.asked.Handles {
		p.touch(c, handle, 0, &event{what: "settle", must: must})
	}
}

func (p *partitions) addChanges(c *call) {
	for i, change := range c.asked.Changes {
		e := &event{what: change[1].(string), ms: int64(number(change[2])), uncounted: change[3].(bool)}
		code := 0
		if c.ok() {
			result := c.told.Results[i]
			code, e.visible, e.dead = number(result[0]), int64(number(result[1])), result[2].(bool)
		}
		p.touch(c, change[0].(string), code, e)
	}
}

// addEnds adds to each message what is there at the end, and the sends to what each group did with it.
func (p *partitions) addEnds() {
	for _, stored := range p.h.stored {
		for id := range stored {
			if _, sent := p.topics[id]; !sent {
				p.complaint = append(p.complaint, id+" is stored, and nobody sent it")
			}
		}
	}
	for one := range p.ops {
		if _, sent := p.topics[one.id]; !sent {
			p.complaint = append(p.complaint, one.id+" was delivered, and nobody sent it")
		}
	}
	rest := &call{client: "at rest", called: never - 1, returned: never - 1, how: "ok"}
	for group, letters := range p.h.dead {
		for id, topic := range p.topics {
			one := reading{group, id}
			e := &event{what: "end", max: p.max(group), stored: p.h.stored[topic][id], letters: letters[id],
				topic: topic}
			p.ops[one] = append(append(p.ops[one], p.sends[id]...), p.operation(rest, e))
		}
	}
}

// withHidden is a history with the pops that were never answered, each of which may have taken the message.
func (p *partitions) withHidden(one reading, ops []porcupine.Operation) []porcupine.Operation {
	all := append([]porcupine.Operation{}, ops...)
	for _, c := range p.hidden[[2]string{one.group, p.topics[one.id]}] {
		e := &event{what: "hidden pop", unknown: true, to: p.h.wallMs(c.returned), max: p.max(one.group)}
		op := p.operation(c, e)
		op.Return = c.returned // a client that gave up has closed the call: it leases nothing later
		all = append(all, op)
	}
	return all
}

func (p *partitions) max(group string) int {
	if found, known := p.h.maxAttempts[group]; known {
		return found
	}
	return 1 << 30
}

func number(of any) int { return int(of.(float64)) }
