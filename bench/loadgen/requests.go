package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand"
	"os"
	"time"

	"google.golang.org/protobuf/proto"
)

// A message id is an id of this process and caller, a number that a request fills in, and the place in the request.
const (
	idMark    = "@@@@@@@@@@@@"
	stampMark = "########"
)

// body returns bytes that do not compress, with room for a stamp.
func body(size int) []byte {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	random, made := rand.New(rand.NewSource(7)), make([]byte, max(size, len(stampMark)))
	for i := range made {
		made[i] = letters[random.Intn(len(letters))]
	}
	copy(made, stampMark)
	return made
}

// uniqueID is the id of one message of a template.
func uniqueID(caller, place int) string {
	started := uint32(time.Now().UnixMicro()) ^ uint32(os.Getpid())
	return fmt.Sprintf("%08x%04x%s%04x", started, caller, idMark, place)
}

// template is an encoded request, of which only ids and stamps change: encoding hundreds of messages for every call
// would measure the load generator.
type template struct {
	encoded     []byte
	ids, stamps []int
	number      uint64
}

func newTemplate(request proto.Message) (*template, error) {
	encoded, err := proto.Marshal(request)
	made := &template{encoded: encoded}
	made.ids, made.stamps = positions(encoded, idMark), positions(encoded, stampMark)
	return made, err
}

// next returns the bytes of a request that was never sent before; they are valid until the following call.
func (t *template) next(stamp int64) []byte {
	t.number++
	id := fmt.Appendf(nil, "%012x", t.number)
	for _, at := range t.ids {
		copy(t.encoded[at:], id)
	}
	for _, at := range t.stamps {
		binary.BigEndian.PutUint64(t.encoded[at:], uint64(stamp))
	}
	return t.encoded
}

// stampOf is the stamp at the beginning of a body.
func stampOf(body []byte) int64 {
	if len(body) < len(stampMark) {
		return 0
	}
	return int64(binary.BigEndian.Uint64(body))
}

func positions(encoded []byte, mark string) []int {
	var found []int
	for at := 0; ; {
		next := bytes.Index(encoded[at:], []byte(mark))
		if next < 0 {
			return found
		}
		found = append(found, at+next)
		at += next + len(mark)
	}
}
