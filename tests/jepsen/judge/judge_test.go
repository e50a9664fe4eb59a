package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// told is a history in the form, from its lines after the head. The clocks of calls and of the broker begin at 0.
func judgedLines(t *testing.T, lines ...string) verdict {
	t.Helper()
	head := `{"form":1,"wall_minus_monotonic_ns":0,"max_attempts":{"g":3},"dropping":false}`
	h, err := read(strings.NewReader(strings.Join(append([]string{head}, lines...), "\n")))
	if err != nil {
		t.Fatal(err)
	}
	return judged(h, time.Second, "")
}

func op(kind string, atMs int, how, asked, told string) string {
	return fmt.Sprintf(`{"op":%q,"client":"c","call":%d,"return":%d,"how":%q,"asked":%s,"told":%s}`, kind,
		atMs*1e6, atMs*1e6+1, how, asked, told)
}

func send(atMs int, id string, offset int) string {
	return op("send", atMs, "ok", fmt.Sprintf(`{"topic":"t","ids":[%q]}`, id),
		fmt.Sprintf(`{"results":[[0,%d]],"duplicate":false}`, offset))
}

func ordered(atMs int, id string, offset int) string {
	return strings.Replace(send(atMs, id, offset), `"topic":"t"`, `"topic":"t","message_group":"m"`, 1)
}

// pop is a delivery with a lease of one second.
func pop(atMs int, id, handle string, attempt, offset int) string {
	rows := fmt.Sprintf(`[[%q,%q,%d,0,%d,true]]`, id, handle, attempt, offset)
	return op("pop", atMs, "ok", `{"topic":"t","group":"g","attempt_id":""}`,
		fmt.Sprintf(`{"popped_ms":%d,"until_ms":%d,"replay":false,"rows":%s}`, atMs, atMs+1000, rows))
}

func lostPop(atMs int) string {
	return op("pop", atMs, "unknown", `{"topic":"t","group":"g","attempt_id":""}`, `{}`)
}

func ack(atMs int, how, handle string, code int) string {
	return op("ack", atMs, how, fmt.Sprintf(`{"group":"g","handles":[%q]}`, handle), fmt.Sprintf(`{"codes":[%d]}`, code))
}

func settle(atMs int, how, handle, id, told string) string {
	return op("settle", atMs, how,
		fmt.Sprintf(`{"group":"g","handles":[%q],"topic":"t","ids":[%q],"producer":"p","number":1}`, handle, id), told)
}

func change(atMs int, how, handle, kind string, ms, visible int, dead bool) string {
	return op("change", atMs, how, fmt.Sprintf(`{"group":"g","changes":[[%q,%q,%d,false]]}`, handle, kind, ms),
		fmt.Sprintf(`{"results":[[0,%d,%t]]}`, visible, dead))
}

func rest(ids ...string) []string {
	lines := []string{`{"end":"topic","topic":"t"}`, `{"end":"group","group":"g"}`}
	for offset, id := range ids {
		lines = append(lines, fmt.Sprintf(`{"end":"stored","topic":"t","id":%q,"positions":[[0,%d]]}`, id, offset))
	}
	return lines
}

func deadLetterOf(id string, attempts int) string {
	return fmt.Sprintf(`{"end":"dead","group":"g","id":%q,"copies":[{"topic":"t","attempts":%d,"intact":true}]}`, id,
		attempts)
}

func TestVerdicts(t *testing.T) {
	const lapsed = 9
	m := rest("m")
	cases := map[string]struct {
		want  string
		lines []string
	}{
		"sent, leased, acked": {"ok", append(m, send(1, "m", 0), pop(10, "m", "h", 1, 0), ack(20, "ok", "h", 0))},
		"again after its lease": {"ok", append(m, send(1, "m", 0), pop(10, "m", "h", 1, 0), pop(1010, "m", "i", 2, 0),
			ack(1020, "ok", "h", lapsed), ack(1030, "ok", "i", 0))},
		"again before its lease is over": {"illegal", append(m, send(1, "m", 0), pop(10, "m", "h", 1, 0),
			pop(1009, "m", "i", 2, 0), ack(1030, "ok", "i", 0))},
		"again after its ack": {"illegal", append(m, send(1, "m", 0), pop(10, "m", "h", 1, 0), ack(20, "ok", "h", 0),
			pop(5000, "m", "i", 2, 0), ack(5010, "ok", "i", 0))},
		"again after an ack without an answer, which never happened": {"ok", append(m, send(1, "m", 0),
			pop(10, "m", "h", 1, 0), ack(20, "unknown", "h", 0), pop(1010, "m", "i", 2, 0), ack(1030, "ok", "i", 0))},
		"only an ack without an answer, which happened": {"ok", append(m, send(1, "m", 0), pop(10, "m", "h", 1, 0),
			ack(20, "unknown", "h", 0))},
		"never acked": {"illegal", append(m, send(1, "m", 0), pop(10, "m", "h", 1, 0))},
		"never sent":  {"illegal", append(m, pop(10, "m", "h", 1, 0), ack(20, "ok", "h", 0))},
		"not stored":  {"illegal", append(rest(), send(1, "m", 0), pop(10, "m", "h", 1, 0), ack(20, "ok", "h", 0))},
		"refused while its lease runs": {"illegal", append(m, send(1, "m", 0), pop(10, "m", "h", 1, 0),
			ack(20, "ok", "h", lapsed), pop(1010, "m", "i", 2, 0), ack(1030, "ok", "i", 0))},
		"the second attempt first": {"illegal", append(m, send(1, "m", 0), pop(10, "m", "h", 2, 0), ack(20, "ok", "h", 0))},
		"the second attempt first, after a pop without an answer": {"ok", append(m, send(1, "m", 0), lostPop(5),
			pop(1010, "m", "h", 2, 0), ack(1020, "ok", "h", 0))},
		"before its extended lease is over": {"illegal", append(m, send(1, "m", 0), pop(10, "m", "h", 1, 0),
			change(20, "ok", "h", "extend", 5000, 5020, false), pop(1010, "m", "i", 2, 0), ack(1030, "ok", "i", 0))},
		"before an extend without an answer": {"ok", append(m, send(1, "m", 0), pop(10, "m", "h", 1, 0),
			change(20, "unknown", "h", "extend", 5000, 0, false), pop(1010, "m", "i", 2, 0), ack(1030, "ok", "i", 0))},
		"before its delay is over": {"illegal", append(m, send(1, "m", 0), pop(10, "m", "h", 1, 0),
			change(20, "ok", "h", "release", 500, 520, false), pop(519, "m", "i", 2, 0), ack(530, "ok", "i", 0))},
		"rejected": {"ok", append(m, send(1, "m", 0), pop(10, "m", "h", 1, 0), change(20, "ok", "h", "reject", 0, 0, true),
			deadLetterOf("m", 1))},
		"rejected, and no dead letter": {"illegal", append(m, send(1, "m", 0), pop(10, "m", "h", 1, 0),
			change(20, "ok", "h", "reject", 0, 0, true))},
		"dead before its last attempt": {"illegal", append(m, send(1, "m", 0), pop(10, "m", "h", 1, 0),
			deadLetterOf("m", 1))},
		"settled without an answer, both": {"ok", append(rest("m", "n"), send(1, "m", 0), pop(10, "m", "h", 1, 0),
			settle(20, "unknown", "h", "n", `{}`), pop(30, "n", "i", 1, 1), ack(40, "ok", "i", 0))},
		"settled without an answer, only the ack": {"illegal", append(m, send(1, "m", 0), pop(10, "m", "h", 1, 0),
			settle(20, "unknown", "h", "n", `{}`))},
		"settled without an answer, only the send": {"illegal", append(rest("m", "n"), send(1, "m", 0),
			pop(10, "m", "h", 1, 0), settle(20, "unknown", "h", "n", `{}`), pop(30, "n", "i", 1, 1),
			ack(40, "ok", "i", 0), pop(1010, "m", "j", 2, 0), ack(1020, "ok", "j", 0))},
		"in order": {"ok", append(rest("a", "b"), ordered(1, "a", 0), ordered(2, "b", 1), pop(10, "a", "h", 1, 0),
			ack(20, "ok", "h", 0), pop(30, "b", "i", 1, 1), ack(40, "ok", "i", 0))},
		"out of order": {"illegal", append(rest("a", "b"), ordered(1, "a", 0), ordered(2, "b", 1),
			pop(10, "a", "h", 1, 0), pop(15, "b", "i", 1, 1), ack(20, "ok", "h", 0), ack(40, "ok", "i", 0))},
	}
	for name, one := range cases {
		if found := judgedLines(t, one.lines...); found.Verdict != one.want {
			t.Errorf("%s: %s, not %s: %v", name, found.Verdict, one.want, found.Findings)
		}
	}
}

func TestAnotherFormIsRefused(t *testing.T) {
	if _, err := read(strings.NewReader(`{"form":2}`)); err == nil {
		t.Error("form 2 was read")
	}
}

func TestAVerdictIsOneLineOfJSON(t *testing.T) {
	raw, err := json.Marshal(judgedLines(t, rest()...))
	if err != nil || strings.Contains(string(raw), "null") {
		t.Errorf("%s %v", raw, err)
	}
}
