package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"sort"
)

// The form of a history: docs/contributing/histories.md. Times of calls are nanoseconds of one monotonic clock, times of
// the broker are milliseconds since 1970.

const form = 1

// never is the return of a call that nobody was told the end of.
const never = math.MaxInt64

type call struct {
	kind, client string
	called       int64
	returned     int64
	how          string // ok, refused, unknown
	asked        asked
	told         told
}

func (c *call) ok() bool      { return c.how == "ok" }
func (c *call) unknown() bool { return c.how == "unknown" }

type asked struct {
	Topic        string   `json:"topic"`
	Group        string   `json:"group"`
	IDs          []string `json:"ids"`
	Producer     string   `json:"producer"`
	Number       uint64   `json:"number"`
	MessageGroup string   `json:"message_group"`
	AttemptID    string   `json:"attempt_id"`
	Handles      []string `json:"handles"`
	Changes      [][]any  `json:"changes"` // handle, kind, milliseconds, uncounted
}

type told struct {
	Results   [][]any `json:"results"` // send, settle: queue, offset; change: code, visible_ms, dead
	Duplicate bool    `json:"duplicate"`
	Codes     []int   `json:"codes"`
	PoppedMs  int64   `json:"popped_ms"`
	UntilMs   int64   `json:"until_ms"`
	Replay    bool    `json:"replay"`
	Rows      [][]any `json:"rows"` // id, handle, attempt, queue, offset, body is intact
}

type position struct{ queue, offset int }

var nowhere = position{-1, -1}

type deadLetter struct {
	Topic    string `json:"topic"`
	Attempts int    `json:"attempts"`
	Intact   bool   `json:"intact"`
}

type history struct {
	wallMinusMonotonic int64
	maxAttempts        map[string]int
	dropping           bool
	calls              []*call
	stored             map[string]map[string][]position // topic, id
	dead               map[string]map[string][]deadLetter
	answered           []int64 // when any client got an answer, ascending
}

type line struct {
	Form        int             `json:"form"`
	Wall        int64           `json:"wall_minus_monotonic_ns"`
	MaxAttempts map[string]int  `json:"max_attempts"`
	Dropping    bool            `json:"dropping"`
	Op          string          `json:"op"`
	Client      string          `json:"client"`
	Call        int64           `json:"call"`
	Return      *int64          `json:"return"`
	How         string          `json:"how"`
	Asked       asked           `json:"asked"`
	Told        json.RawMessage `json:"told"`
	End         string          `json:"end"`
	Topic       string          `json:"topic"`
	Group       string          `json:"group"`
	ID          string          `json:"id"`
	Positions   [][2]int        `json:"positions"`
	Copies      []deadLetter    `json:"copies"`
}

// read takes a history from its lines.
func read(from io.Reader) (*history, error) {
	h := &history{stored: map[string]map[string][]position{}, dead: map[string]map[string][]deadLetter{}}
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 64<<20)
	for number := 1; lines.Scan(); number++ {
		var one line
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		if number == 1 {
			if one.Form != form {
				return nil, fmt.Errorf("form %d is not %d", one.Form, form)
			}
			h.wallMinusMonotonic, h.maxAttempts, h.dropping = one.Wall, one.MaxAttempts, one.Dropping
		} else if err := h.add(one); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
	}
	sort.SliceStable(h.calls, func(i, j int) bool { return h.calls[i].called < h.calls[j].called })
	sort.Slice(h.answered, func(i, j int) bool { return h.answered[i] < h.answered[j] })
	return h, lines.Err()
}

func (h *history) add(one line) error {
	switch {
	case one.Op != "":
		c := &call{kind: one.Op, client: one.Client, called: one.Call, returned: never, how: one.How, asked: one.Asked}
		if one.Return != nil {
			c.returned = *one.Return
		}
		if c.ok() {
			if err := json.Unmarshal(one.Told, &c.told); err != nil {
				return err
			}
			h.answered = append(h.answered, c.returned)
		}
		h.calls = append(h.calls, c)
	case one.End == "stored":
		if h.stored[one.Topic] == nil {
			h.stored[one.Topic] = map[string][]position{}
		}
		for _, at := range one.Positions {
			h.stored[one.Topic][one.ID] = append(h.stored[one.Topic][one.ID], position{at[0], at[1]})
		}
	case one.End == "group":
		h.dead[one.Group] = map[string][]deadLetter{}
	case one.End == "dead":
		h.dead[one.Group][one.ID] = one.Copies
	}
	return nil
}

// wallMs is a time of a call on the clock of the broker, which differs from it by less than a margin.
func (h *history) wallMs(ns int64) int64 {
	if ns == never {
		return never
	}
	return (ns + h.wallMinusMonotonic) / 1e6
}

// silentMs is the longest time in which the broker answered nobody: a lease cannot end while it is stopped or dead.
func (h *history) silentMs(fromMs, toMs int64) int64 {
	from, to := fromMs*1e6-h.wallMinusMonotonic, toMs*1e6-h.wallMinusMonotonic
	longest, before := int64(0), from
	at := sort.Search(len(h.answered), func(i int) bool { return h.answered[i] >= from })
	for ; at < len(h.answered) && h.answered[at] < to; at++ {
		longest, before = max(longest, h.answered[at]-before), h.answered[at]
	}
	return max(longest, to-before) / 1e6
}
