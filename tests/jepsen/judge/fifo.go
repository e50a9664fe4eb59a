package main

import (
	"fmt"
	"sort"
	"strings"

	"github.com/anishathalye/porcupine"
)

// The model of one message group for one group, in FIFO topics: a message is delivered only when those before it are
// done, or come before it in the same answer.
//
// The state is the set of what is done, as places in the order of the message group: "1,2,5,".

type turn struct {
	deliver []int // places in the order of the message group, ascending
	done    []int // acked, rejected, dead
	what    string
}

func fifoModel() porcupine.Model {
	return porcupine.Model{
		Init: func() interface{} { return "" },
		Step: func(s, input, _ interface{}) (bool, interface{}) {
			return inTurn(s.(string), input.(*turn))
		},
		DescribeOperation: func(input, _ interface{}) string {
			t := input.(*turn)
			return fmt.Sprintf("%s %v%v", t.what, t.deliver, t.done)
		},
		DescribeState: func(s interface{}) string { return "done: " + s.(string) },
	}
}

func inTurn(done string, t *turn) (bool, string) {
	have := map[string]bool{}
	for _, one := range strings.Split(done, ",") {
		have[one] = true
	}
	for _, place := range t.done {
		have[fmt.Sprint(place)] = true
	}
	if len(t.deliver) > 0 {
		here := map[int]bool{}
		for _, place := range t.deliver {
			here[place] = true
		}
		for place := 0; place < t.deliver[len(t.deliver)-1]; place++ {
			if !here[place] && !have[fmt.Sprint(place)] {
				return false, done
			}
		}
		return true, done
	}
	places := []int{}
	for one := range have {
		var place int
		if _, err := fmt.Sscan(one, &place); err == nil {
			places = append(places, place)
		}
	}
	sort.Ints(places)
	var all strings.Builder
	for _, place := range places {
		fmt.Fprintf(&all, "%d,", place)
	}
	return true, all.String()
}

// line is one message group as one group reads it.
type queueLine struct{ group, topic, messageGroup string }

// fifoLines makes the histories of all message groups, from those of the messages.
func (p *partitions) fifoLines() map[queueLine][]porcupine.Operation {
	places := p.places()
	lines := map[queueLine]map[*call]*turn{}
	at := func(handle string) (queueLine, int, bool) {
		one, known := p.handles[handle]
		place, ordered := places[one.id]
		return queueLine{one.group, one.topic, p.groups[one.id]}, place, known && ordered
	}
	turnOf := func(key queueLine, c *call) *turn {
		if lines[key] == nil {
			lines[key] = map[*call]*turn{}
		}
		if lines[key][c] == nil {
			lines[key][c] = &turn{what: c.kind}
		}
		return lines[key][c]
	}
	for _, c := range p.h.calls {
		if c.how == "refused" || c.told.Replay {
			continue
		}
		for _, row := range c.told.Rows {
			if key, place, ordered := at(row[1].(string)); ordered {
				t := turnOf(key, c)
				t.deliver = append(t.deliver, place)
			}
		}
		for _, handle := range p.finished(c) {
			if key, place, ordered := at(handle); ordered {
				t := turnOf(key, c)
				t.done = append(t.done, place)
			}
		}
	}
	made := map[queueLine][]porcupine.Operation{}
	for key, turns := range lines {
		for c, t := range turns {
			sort.Ints(t.deliver)
			returned := c.returned
			if c.unknown() {
				returned = never
			}
			made[key] = append(made[key], porcupine.Operation{ClientId: p.clients[c.client], Input: t, Call: c.called,
				Return: returned})
		}
		made[key] = append(made[key], p.deaths(key, places)...)
	}
	return made
}

// deaths: a message whose last attempt ended is done when its lease is over, which no call tells. Each may be at any
// time after its last delivery.
func (p *partitions) deaths(key queueLine, places map[string]int) []porcupine.Operation {
	made := []porcupine.Operation{}
	for id := range p.h.dead[key.group] {
		place, ordered := places[id]
		if !ordered || p.groups[id] != key.messageGroup || p.topics[id] != key.topic {
			continue
		}
		from := int64(0)
		for _, op := range p.ops[reading{key.group, id}] {
			if op.Input.(*event).what == "deliver" {
				from = max(from, op.Call)
			}
		}
		made = append(made, porcupine.Operation{ClientId: len(p.clients), Call: from, Return: never,
			Input: &turn{done: []int{place}, what: "dead letter"}})
	}
	return made
}

// finished lists the handles of the deliveries that a call ended for good, or may have.
func (p *partitions) finished(c *call) []string {
	found := []string{}
	for i, handle := range c.asked.Handles {
		if c.unknown() || c.kind == "settle" || c.told.Codes[i] == 0 {
			found = append(found, handle)
		}
	}
	for i, change := range c.asked.Changes {
		dies := c.ok() && number(c.told.Results[i][0]) == 0 && (change[1] == "reject" || c.told.Results[i][2].(bool))
		if dies || c.unknown() && change[1] != "extend" {
			found = append(found, change[0].(string))
		}
	}
	return found
}

// places: the place of each stored message in its message group, by its offset. One queue has all of a message group.
func (p *partitions) places() map[string]int {
	type placed struct {
		id     string
		offset int
	}
	byGroup := map[[2]string][]placed{}
	for topic, stored := range p.h.stored {
		for id, at := range stored {
			if group := p.groups[id]; group != "" {
				key := [2]string{topic, group}
				byGroup[key] = append(byGroup[key], placed{id, at[0].offset})
			}
		}
	}
	places := map[string]int{}
	for _, all := range byGroup {
		sort.Slice(all, func(i, j int) bool { return all[i].offset < all[j].offset })
		for place, one := range all {
			places[one.id] = place
		}
	}
	return places
}
