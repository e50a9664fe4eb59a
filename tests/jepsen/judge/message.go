package main

import (
	"fmt"

	"github.com/anishathalye/porcupine"
)

// The model of one message for one group: what the broker promises about it, one call after the other.
//
//	absent ─send─▶ ready ─pop─▶ leased ─ack─▶ gone
//	                 ▲             ├─release, deadline─▶ ready
//	                 └─────────────┤
//	                               └─reject, last attempt─▶ dead
//
// A call whose outcome is unknown did it or did not: both states are followed.

type phase int

const (
	absent phase = iota
	ready
	leased
	gone
	dead
)

var phases = [...]string{"absent", "ready", "leased", "gone", "dead"}

// The margins of the documents: how far the clocks of two processes are apart, how late a lease may end.
const (
	clocksMs = 50
	lateMs   = 1000
)

// state of a message. Not before `lo` may it be delivered, and not long after `hi` is its handle good: two times, since
// the deadline that an unanswered extend gave is not known.
type state struct {
	phase    phase
	handle   string
	attempt  int
	lo, hi   int64
	at       position
	follower bool // the message before it in its message group came in the same pop: if that one fails, this one is free
}

// event is a call as one message sees it; `what` is its kind, and the kind of a change.
type event struct {
	h       *history
	what    string
	unknown bool
	// deliver, ack and changes
	handle   string
	attempt  int
	from, to int64 // deliver: popped, until. Others: when it was called and returned, on the wall
	at       position
	follower bool
	intact   bool
	// changes
	ms, visible int64
	uncounted   bool
	dead        bool
	lapsed      bool
	// send
	duplicate bool
	// end
	max     int
	stored  []position
	letters []deadLetter
	topic   string
	must    int // settle without an answer: 1 if its message is stored, -1 if it is not
}

func messageModel() porcupine.Model {
	model := porcupine.NondeterministicModel{
		Init: func() []interface{} { return []interface{}{state{at: nowhere}} },
		Step: func(s, input, _ interface{}) []interface{} {
			e := input.(*event)
			next := []interface{}{}
			if after, may := step(s.(state), e); may {
				next = append(next, after)
			}
			if e.unknown && e.must != 1 {
				next = append(next, s)
			}
			return next
		},
		Hash:              func(s interface{}) uint64 { return hash(s.(state)) },
		DescribeOperation: func(input, _ interface{}) string { return input.(*event).String() },
		DescribeState:     func(s interface{}) string { return s.(state).String() },
	}
	return model.ToModel()
}

// step is what a call does that happened; false: it cannot have happened now.
func step(s state, e *event) (state, bool) {
	switch e.what {
	case "send":
		return sent(s, e)
	case "deliver":
		return delivered(s, e)
	case "hidden pop":
		return popped(s, e)
	case "end":
		return s, atEnd(s, e)
	}
	if e.lapsed {
		return s, mayLapse(s, e)
	}
	if e.must == -1 || s.phase != leased || s.handle != e.handle || !inTime(s, e) {
		return s, false
	}
	switch e.what {
	case "ack", "settle":
		s.phase = gone
	case "reject":
		s.phase = dead
	case "extend":
		if s.lo, s.hi = e.visible, e.visible; e.unknown {
			s.lo, s.hi = e.from+e.ms-clocksMs, never
		}
	case "release":
		s = released(s, e)
	}
	return s, true
}

// sent: the first one stores the message, a repeated one must be told of the same place.
func sent(s state, e *event) (state, bool) {
	if s.phase == absent {
		return state{phase: ready, at: e.at}, !e.duplicate
	}
	if e.unknown {
		return s, true
	}
	fits := s.at == nowhere || s.at == e.at
	s.at = e.at
	return s, fits && e.duplicate
}

// delivered: never before its time, never after it is done, and with the next attempt.
func delivered(s state, e *event) (state, bool) {
	next := s.attempt + 1
	early := e.from < s.lo
	if s.follower && e.attempt <= next { // it may have gone back with the one before it, uncounted
		early, next = false, max(e.attempt, s.attempt)
	}
	may := (s.phase == ready || s.phase == leased) && !early && e.attempt == next && e.attempt <= e.max && e.intact
	may = may && (s.at == nowhere || s.at == e.at)
	return state{leased, e.handle, e.attempt, e.to, e.to, e.at, e.follower}, may
}

// popped: a pop without an answer took it, for a time that is not known.
func popped(s state, e *event) (state, bool) {
	may := (s.phase == ready || s.phase == leased) && s.lo <= e.to && s.attempt < e.max
	return state{leased, "?", s.attempt + 1, 0, never, s.at, true}, may
}

func released(s state, e *event) state {
	if e.dead || e.unknown && s.attempt == e.max && !e.uncounted {
		s.phase = dead
		return s
	}
	if e.uncounted {
		s.attempt--
	}
	s.phase, s.handle, s.lo, s.hi = ready, "", e.visible, never
	if e.unknown {
		s.lo = 0
	}
	return s
}

// inTime: a handle is good until its lease has ended, which may be noticed late.
func inTime(s state, e *event) bool {
	if s.hi == never || e.from <= s.hi+lateMs {
		return true
	}
	return e.from <= s.hi+lateMs+e.h.silentMs(s.hi, e.from)
}

// mayLapse: a handle is refused when another call ended its lease, or when its time was over.
func mayLapse(s state, e *event) bool {
	live := s.phase == leased && s.handle == e.handle && !s.follower
	return !live || e.to == never || e.to >= s.lo-clocksMs
}

// atEnd: everything came to rest. What was sent is stored once and either acked or a dead letter, one.
func atEnd(s state, e *event) bool {
	if s.phase == absent {
		return len(e.stored) == 0 && len(e.letters) == 0
	}
	if len(e.stored) > 1 || len(e.stored) == 0 && !e.h.dropping {
		return false
	}
	if len(e.stored) == 1 && s.at != nowhere && s.at != e.stored[0] {
		return false
	}
	if len(e.letters) == 0 {
		return s.phase == gone
	}
	one := e.letters[0]
	lastEnded := (s.phase == ready || s.phase == leased) && s.attempt == e.max
	return len(e.letters) == 1 && one.Intact && one.Topic == e.topic && one.Attempts == s.attempt &&
		(s.phase == dead || lastEnded)
}

func hash(s state) uint64 {
	found := uint64(s.phase)*31 + uint64(s.attempt)
	found = found*31 + uint64(s.lo)
	for i := 0; i < len(s.handle); i++ {
		found = found*131 + uint64(s.handle[i])
	}
	return found
}

func (s state) String() string {
	return fmt.Sprintf("%s, attempt %d, handle %s, not before %d, position %v", phases[s.phase], s.attempt, s.handle,
		s.lo, s.at)
}

func (e *event) String() string {
	how := ""
	if e.unknown {
		how = " (no answer)"
	} else if e.lapsed {
		how = " → HANDLE_LAPSED"
	}
	switch e.what {
	case "send":
		return fmt.Sprintf("send → %v%s", e.at, how)
	case "deliver":
		return fmt.Sprintf("pop → attempt %d, handle %s, at %d until %d", e.attempt, e.handle, e.from, e.to)
	case "end":
		return fmt.Sprintf("at rest: stored at %v, dead letters %v", e.stored, e.letters)
	case "extend", "release":
		return fmt.Sprintf("%s %s by %d ms → %d%s", e.what, e.handle, e.ms, e.visible, how)
	}
	return fmt.Sprintf("%s %s%s", e.what, e.handle, how)
}
