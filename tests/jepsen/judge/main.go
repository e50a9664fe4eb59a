// Judge reads a history of a message broker and judges it with Porcupine, a checker of linearizability that has nothing
// to do with this project: each message for each group, and each message group of FIFO topics.
//
//	judge [-page FOLDER] [-seconds 10] HISTORY.jsonl
//
// It prints one line of JSON. It ends with 0 if there is an order of all calls in which the broker kept its promises, with
// 1 if there is none, with 3 if the time was not enough to know. Of the first histories without one it draws a page.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

// pagesMax: so many counter-examples are drawn; one defect makes many of them.
const pagesMax = 3

// findingsMax: so many are named.
const findingsMax = 20

type verdict struct {
	Verdict    string   `json:"verdict"` // ok, illegal, unknown
	Partitions int      `json:"partitions"`
	Operations int      `json:"operations"`
	Illegal    int      `json:"illegal"`
	Unknown    int      `json:"unknown"`
	Findings   []string `json:"findings"`
	Pages      []string `json:"pages"`
}

type judge struct {
	limit  time.Duration
	folder string
	found  verdict
}

func main() {
	page := flag.String("page", "", "the folder for pages of counter-examples; empty: none")
	seconds := flag.Float64("seconds", 10, "the time limit of one message or message group")
	flag.Parse()
	file, err := os.Open(flag.Arg(0))
	if err == nil {
		var h *history
		if h, err = read(file); err == nil {
			found := judged(h, time.Duration(*seconds*float64(time.Second)), *page)
			_ = json.NewEncoder(os.Stdout).Encode(found)
			os.Exit(map[string]int{"ok": 0, "illegal": 1, "unknown": 3}[found.Verdict])
		}
	}
	fmt.Fprintln(os.Stderr, "judge:", err)
	os.Exit(2)
}

// judged is the verdict about a whole history.
func judged(h *history, limit time.Duration, folder string) verdict {
	p := partition(h)
	j := &judge{limit: limit, folder: folder, found: verdict{Findings: []string{}, Pages: []string{}}}
	j.found.Findings, j.found.Illegal = append(j.found.Findings, p.complaint...), len(p.complaint)
	model := messageModel()
	for _, one := range sorted(p.ops) {
		ops := p.ops[one]
		j.found.Partitions++
		j.found.Operations += len(ops)
		if porcupine.CheckOperationsTimeout(model, ops, j.limit) == porcupine.Ok {
			continue
		}
		// Few messages were taken by a pop that was never answered: such pops are added where they are needed.
		j.take(model, p.withHidden(one, ops), fmt.Sprintf("%s for group %s", one.id, one.group))
	}
	for key, ops := range p.fifoLines() {
		j.found.Partitions++
		j.found.Operations += len(ops)
		j.take(fifoModel(), ops, fmt.Sprintf("message group %s of %s for group %s", key.messageGroup, key.topic, key.group))
	}
	switch {
	case j.found.Illegal > 0:
		j.found.Verdict = "illegal"
	case j.found.Unknown > 0:
		j.found.Verdict = "unknown"
	default:
		j.found.Verdict = "ok"
	}
	if len(j.found.Findings) > findingsMax {
		j.found.Findings = j.found.Findings[:findingsMax]
	}
	return j.found
}

// take judges one history, counts it, and draws it if no order of its calls is possible.
func (j *judge) take(model porcupine.Model, ops []porcupine.Operation, who string) {
	result := porcupine.CheckOperationsTimeout(model, ops, j.limit)
	switch result {
	case porcupine.Ok:
		return
	case porcupine.Unknown:
		j.found.Unknown++
		return
	}
	j.found.Illegal++
	j.found.Findings = append(j.found.Findings, "no order of the calls explains "+who)
	if j.folder == "" || len(j.found.Pages) == pagesMax {
		return
	}
	_, info := porcupine.CheckOperationsVerbose(model, ops, j.limit)
	path := filepath.Join(j.folder, fmt.Sprintf("counter-example-%d.html", len(j.found.Pages)+1))
	if err := porcupine.VisualizePath(model, info, path); err == nil {
		j.found.Pages = append(j.found.Pages, path)
	}
}

func sorted(ops map[reading][]porcupine.Operation) []reading {
	found := make([]reading, 0, len(ops))
	for one := range ops {
		found = append(found, one)
	}
	sort.Slice(found, func(i, k int) bool {
		return found[i].id < found[k].id || found[i].id == found[k].id && found[i].group < found[k].group
	})
	return found
}
