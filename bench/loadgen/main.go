// Loadgen measures a message broker from outside, for `make bench-compare` (bench/compare.py).
//
//	loadgen -target popmq -endpoint 127.0.0.1:8081 -leg send -topic b256 -batch 256 -callers 8
//
// Targets: popmq (popmq.v1), rocketmq (apache.rocketmq.v2: RocketMQ, or PopMQ's second face), redis, nats, rabbitmq.
//
//	prepare   makes the topics, given with commas between them, and the group
//	send      callers in a closed loop: each waits for the answer to its batch
//	receive   callers in a closed loop: each receives up to a batch and acknowledges it
//	deliver   sends at -rate requests a second and receives meanwhile; latency is from the time at which a message was
//	          due to be sent until it was received, so a stall of the broker counts for every message due during it
//
// It connects, prints "ready", waits for a line on its standard input, runs, and prints one line of JSON.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"strings"
	"syscall"
	"time"
)

// options are the flags of one run.
type options struct {
	target, endpoint, leg, topic, group      string
	batch, callers, connections, bytes, rate int
	take                                     int // the batch of a receive
	seconds                                  float64
}

// result is the line of JSON. Latencies are of whole steps: one send, or one receive with its ack; for deliver, of
// messages.
type result struct {
	Messages    uint64  `json:"messages"`
	ElapsedS    float64 `json:"elapsed_s"`
	P50Ms       float64 `json:"p50_ms"`
	P99Ms       float64 `json:"p99_ms"`
	P999Ms      float64 `json:"p999_ms"`
	MaxMs       float64 `json:"max_ms"`
	LoadCPUS    float64 `json:"load_cpu_s"`
	Undelivered uint64  `json:"undelivered"`
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("loadgen: ")
	var given options
	flag.StringVar(&given.target, "target", "popmq", "popmq, rocketmq, redis, nats or rabbitmq")
	flag.StringVar(&given.endpoint, "endpoint", "127.0.0.1:8081", "host:port")
	flag.StringVar(&given.leg, "leg", "send", "prepare, send, receive or deliver")
	flag.StringVar(&given.topic, "topic", "bench", "topic; for prepare several, with commas")
	flag.StringVar(&given.group, "group", "bench", "consumer group")
	flag.IntVar(&given.batch, "batch", 1, "messages a request")
	flag.IntVar(&given.callers, "callers", 1, "requests in flight")
	flag.IntVar(&given.connections, "connections", 4, "connections that the callers share, where the protocol allows it")
	flag.IntVar(&given.bytes, "bytes", 1024, "bytes of a body")
	flag.IntVar(&given.rate, "rate", 1000, "requests a second of deliver")
	flag.Float64Var(&given.seconds, "seconds", 5, "how long to run")
	flag.Parse()
	if err := run(given); err != nil {
		log.Fatal(err)
	}
}

// takenAtOnce is how many messages a receive of deliver takes: consumers name a batch, whatever the producers send.
const takenAtOnce = 32

func run(given options) error {
	given.take = given.batch
	if given.leg == "deliver" {
		given.take = max(given.batch, takenAtOnce)
	}
	broker, err := open(given)
	if err != nil {
		return err
	}
	defer broker.close()
	if given.leg == "prepare" {
		return broker.prepare(strings.Split(given.topic, ","))
	}
	begin, ok := legs[given.leg]
	if !ok {
		return fmt.Errorf("there is no leg %q", given.leg)
	}
	ready, err := begin(broker, given)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	cpu := cpuSeconds()
	measured, err := ready()
	if err != nil {
		return err
	}
	measured.LoadCPUS = cpuSeconds() - cpu
	return json.NewEncoder(os.Stdout).Encode(measured)
}

// cpuSeconds is the CPU time of this process.
func cpuSeconds() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
}
