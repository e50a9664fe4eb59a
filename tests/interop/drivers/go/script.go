package main

import (
	"encoding/json"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-clients/golang/v5"
)

// A script is what a listener or a checker does by its command: fail so often, take so long, answer this.
// It tells each call as an event.
type script struct {
	name    string
	fail    map[string]int
	all     int64            // what every call takes, in milliseconds,
	takes   map[string]int64 // or calls for these bodies
	answers []string
	lock    sync.Mutex
	calls   map[string]int
}

func newScript(c *command) *script {
	s := &script{name: c.Name, fail: c.Fail, calls: map[string]int{}}
	if json.Unmarshal(c.TakeMs, &s.all) != nil {
		_ = json.Unmarshal(c.TakeMs, &s.takes) // absent: no time at all
	}
	if json.Unmarshal(c.Checker, &s.answers) != nil {
		s.answers = make([]string, 1)
		_ = json.Unmarshal(c.Checker, &s.answers[0])
	}
	return s
}

// call counts the calls for one body or message id, from 1.
func (s *script) call(of string) int {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.calls[of]++
	return s.calls[of]
}

func (s *script) consume(view *rocketmq.MessageView) rocketmq.ConsumerResult {
	body := string(view.GetBody())
	message := came(view)
	s.tell("listening", message, nil)
	time.Sleep(ms(s.all + s.takes[body]))
	failures := s.fail[body]
	ok := failures >= 0 && s.call(body) > failures
	s.tell("listened", message, map[string]any{"ok": ok})
	if ok {
		return rocketmq.SUCCESS
	}
	return rocketmq.FAILURE
}

func (s *script) check(view *rocketmq.MessageView) rocketmq.TransactionResolution {
	answer := s.answers[min(s.call(view.GetMessageId()), len(s.answers))-1]
	s.tell("check", came(view), map[string]any{"answer": answer})
	switch answer {
	case "commit":
		return rocketmq.COMMIT
	case "rollback":
		return rocketmq.ROLLBACK
	}
	return rocketmq.UNKNOWN
}

func (s *script) tell(kind string, message, more map[string]any) {
	event := map[string]any{"event": kind, "name": s.name, "at_ms": time.Now().UnixMilli(), "message": message}
	for field, value := range more {
		event[field] = value
	}
	say(event)
}
