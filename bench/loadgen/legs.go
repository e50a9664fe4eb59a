package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// target is one broker and its client.
type target interface {
	// prepare makes the topics and the group. The group reads a topic from its first message on.
	prepare(topics []string) error
	// sender returns a caller's function that sends one batch and returns when the broker has confirmed all of it.
	// Every body starts with the stamp, a time in nanoseconds.
	sender(caller int) (func(stamp int64) error, error)
	// receiver returns a caller's function that waits for messages, acknowledges them and returns their number. It
	// reports the stamp of each before it acknowledges. 0: the wait ended without a message.
	receiver(caller int) (func(ctx context.Context, seen func(stamp int64)) (int, error), error)
	close()
}

// begun is a leg that is connected and has prepared what it can: calling it measures.
type begun func() (result, error)

var legs = map[string]func(target, options) (begun, error){"send": send, "receive": receive, "deliver": deliver}

// tally is what one caller has done. Callers share nothing while they are measured.
type tally struct {
	latencies histogram
	messages  uint64
	last      time.Time
	err       error
}

// each runs a caller's work for all callers at once and joins what they did.
func each(callers int, work func(caller int, own *tally)) (*tally, error) {
	tallies, wait := make([]tally, callers), sync.WaitGroup{}
	for caller := range tallies {
		wait.Add(1)
		go func() {
			defer wait.Done()
			work(caller, &tallies[caller])
		}()
	}
	wait.Wait()
	all := &tallies[0]
	for i := range tallies[1:] {
		one := &tallies[i+1]
		all.latencies.merge(&one.latencies)
		all.messages += one.messages
		if one.last.After(all.last) {
			all.last = one.last
		}
		if all.err == nil {
			all.err = one.err
		}
	}
	return all, all.err
}

func (t *tally) result(began time.Time) result {
	h := &t.latencies
	return result{
		Messages: t.messages, ElapsedS: max(t.last.Sub(began).Seconds(), 1e-9),
		P50Ms: h.percentile(0.5), P99Ms: h.percentile(0.99), P999Ms: h.percentile(0.999), MaxMs: float64(h.max) / 1e6,
	}
}

func send(broker target, given options) (begun, error) {
	senders := make([]func(int64) error, given.callers)
	for caller := range senders {
		var err error
		if senders[caller], err = broker.sender(caller); err != nil {
			return nil, err
		}
	}
	return func() (result, error) {
		began := time.Now()
		until := began.Add(seconds(given))
		all, err := each(given.callers, func(caller int, own *tally) {
			for now := began; now.Before(until) && own.err == nil; now = own.last {
				own.err = senders[caller](now.UnixNano())
				own.last = time.Now()
				own.latencies.add(own.last.Sub(now))
				own.messages += uint64(given.batch)
			}
		})
		return all.result(began), err
	}, nil
}

func receive(broker target, given options) (begun, error) {
	receivers, err := receiversOf(broker, given.callers)
	if err != nil {
		return nil, err
	}
	return func() (result, error) {
		began := time.Now()
		// A receive that waits at a drained topic ends with the leg; the rate counts until the last message came. A
		// deadline would be sent to the broker, which might answer it before this side calls it over.
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		time.AfterFunc(seconds(given), cancel)
		all, err := each(given.callers, func(caller int, own *tally) {
			for ctx.Err() == nil && own.err == nil {
				start := time.Now()
				count, err := receivers[caller](ctx, func(int64) {})
				if count > 0 {
					own.last = time.Now()
					own.latencies.add(own.last.Sub(start))
					own.messages += uint64(count)
				}
				if ctx.Err() == nil {
					own.err = err
				}
			}
		})
		return all.result(began), err
	}, nil
}

func receiversOf(broker target, callers int) ([]func(context.Context, func(int64)) (int, error), error) {
	receivers := make([]func(context.Context, func(int64)) (int, error), callers)
	for caller := range receivers {
		var err error
		if receivers[caller], err = broker.receiver(caller); err != nil {
			return nil, err
		}
	}
	return receivers, nil
}

// Callers that receive during deliver, and the time that the last messages have to arrive.
const (
	listeners = 4
	settle    = time.Second
)

func deliver(broker target, given options) (begun, error) {
	senders := make([]func(int64) error, given.callers)
	for caller := range senders {
		var err error
		if senders[caller], err = broker.sender(caller); err != nil {
			return nil, err
		}
	}
	receivers, err := receiversOf(broker, listeners)
	if err != nil {
		return nil, err
	}
	return func() (result, error) {
		began := time.Now()
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		sent := make(chan error, 1)
		go func() {
			sent <- atRate(senders, given, began)
			time.Sleep(settle)
			cancel()
		}()
		all, err := each(listeners, func(caller int, own *tally) {
			for ctx.Err() == nil && own.err == nil {
				_, err := receivers[caller](ctx, func(stamp int64) {
					if stamp < began.UnixNano() {
						return // left in the topic by an earlier leg
					}
					own.last = time.Now()
					own.latencies.add(time.Duration(own.last.UnixNano() - stamp))
					own.messages++
				})
				if ctx.Err() == nil {
					own.err = err
				}
			}
		})
		if err == nil {
			err = <-sent
		}
		measured := all.result(began)
		measured.Undelivered = due(given) - min(all.latencies.total, due(given))
		return measured, err
	}, nil
}

// due is how many messages deliver sends.
func due(given options) uint64 {
	return uint64(float64(given.rate)*given.seconds) * uint64(given.batch)
}

// atRate sends each request at its own time, whether or not earlier ones were answered, as long as a caller is free; one
// that starts late keeps the stamp of its own time.
func atRate(senders []func(int64) error, given options, began time.Time) error {
	var next atomic.Int64
	requests := int64(due(given)) / int64(given.batch)
	_, err := each(len(senders), func(caller int, own *tally) {
		for own.err == nil {
			number := next.Add(1) - 1
			if number >= requests {
				return
			}
			at := began.Add(time.Duration(number) * time.Second / time.Duration(given.rate))
			time.Sleep(time.Until(at))
			own.err = senders[caller](at.UnixNano())
		}
	})
	return err
}

func seconds(given options) time.Duration {
	return time.Duration(given.seconds * float64(time.Second))
}
