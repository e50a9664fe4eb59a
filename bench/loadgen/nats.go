package main

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Messages that may be published and not yet confirmed, and delivered and not yet acknowledged.
const (
	natsPending = 8_192
	natsUnacked = 100_000
)

// stream is NATS JetStream, with files.
type stream struct {
	options
	connection *nats.Conn
	jetstream  jetstream.JetStream
}

func openNATS(given options) (target, error) {
	connection, err := nats.Connect("nats://" + given.endpoint)
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(connection, jetstream.WithPublishAsyncMaxPending(natsPending))
	return &stream{given, connection, js}, err
}

func (s *stream) close() { s.connection.Close() }

func (s *stream) prepare(topics []string) error {
	ctx := context.Background()
	for _, topic := range topics {
		config := jetstream.StreamConfig{Name: topic, Subjects: []string{topic}, Storage: jetstream.FileStorage}
		if _, err := s.jetstream.CreateStream(ctx, config); err != nil {
			return err
		}
		consumer := jetstream.ConsumerConfig{Durable: s.group, AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: natsUnacked}
		if _, err := s.jetstream.CreateConsumer(ctx, topic, consumer); err != nil {
			return err
		}
	}
	return nil
}

// sender publishes a batch without waiting between its messages, then waits for all confirmations.
func (s *stream) sender(int) (func(int64) error, error) {
	ctx := context.Background()
	return func(stamp int64) error {
		content := body(s.bytes)
		if s.batch == 1 {
			binary.BigEndian.PutUint64(content, uint64(stamp))
			_, err := s.jetstream.Publish(ctx, s.topic, content)
			return err
		}
		binary.BigEndian.PutUint64(content, uint64(stamp))
		waiting := make([]jetstream.PubAckFuture, s.batch)
		for place := range waiting {
			var err error
			if waiting[place], err = s.jetstream.PublishAsync(s.topic, content); err != nil {
				return err
			}
		}
		for _, one := range waiting {
			select {
			case <-one.Ok():
			case err := <-one.Err():
				return err
			}
		}
		return nil
	}, nil
}

// receiver acknowledges as JetStream's clients do: without waiting for an answer.
func (s *stream) receiver(int) (func(context.Context, func(int64)) (int, error), error) {
	consumer, err := s.jetstream.Consumer(context.Background(), s.topic, s.group)
	if err != nil {
		return nil, err
	}
	messages, err := consumer.Messages(jetstream.PullMaxMessages(4 * s.take))
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, seen func(int64)) (int, error) {
		count := 0
		for count < s.take {
			wait := ctx
			if count > 0 {
				var cancel context.CancelFunc
				wait, cancel = context.WithTimeout(ctx, time.Millisecond)
				defer cancel()
			}
			message, err := messages.Next(jetstream.NextContext(wait))
			if err != nil && count > 0 {
				return count, nil
			}
			if err != nil {
				return 0, err
			}
			seen(stampOf(message.Data()))
			if err := message.Ack(); err != nil {
				return count, err
			}
			count++
		}
		return count, nil
	}, nil
}
