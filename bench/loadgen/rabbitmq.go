package main

import (
	"context"
	"encoding/binary"
	"errors"

	amqp "github.com/rabbitmq/amqp091-go"
)

// quorum is RabbitMQ with quorum queues, each on its own.
type quorum struct {
	options
	connection *amqp.Connection
}

func openRabbitMQ(given options) (target, error) {
	connection, err := amqp.Dial("amqp://guest:guest@" + given.endpoint + "/")
	return &quorum{given, connection}, err
}

func (q *quorum) close() { _ = q.connection.Close() }

func (q *quorum) prepare(topics []string) error {
	channel, err := q.connection.Channel()
	if err != nil {
		return err
	}
	for _, topic := range topics {
		if _, err := channel.QueueDeclare(topic, true, false, false, false, amqp.Table{"x-queue-type": "quorum"}); err != nil {
			return err
		}
	}
	return nil
}

// sender publishes a batch, then waits for the confirmation of each of its messages.
func (q *quorum) sender(int) (func(int64) error, error) {
	channel, err := q.connection.Channel()
	if err != nil {
		return nil, err
	}
	if err := channel.Confirm(false); err != nil {
		return nil, err
	}
	content, waiting := body(q.bytes), make([]*amqp.DeferredConfirmation, q.batch)
	return func(stamp int64) error {
		binary.BigEndian.PutUint64(content, uint64(stamp))
		for place := range waiting {
			message := amqp.Publishing{DeliveryMode: amqp.Persistent, Body: content}
			var err error
			if waiting[place], err = channel.PublishWithDeferredConfirm("", q.topic, false, false, message); err != nil {
				return err
			}
		}
		for _, one := range waiting {
			if !one.Wait() {
				return errors.New("a message was not confirmed")
			}
		}
		return nil
	}, nil
}

// receiver takes one message or more, as far as they have arrived, and acknowledges all with one frame.
func (q *quorum) receiver(int) (func(context.Context, func(int64)) (int, error), error) {
	channel, err := q.connection.Channel()
	if err != nil {
		return nil, err
	}
	if err := channel.Qos(2*q.take, 0, false); err != nil {
		return nil, err
	}
	deliveries, err := channel.Consume(q.topic, "", false, false, false, false, nil)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, seen func(int64)) (int, error) {
		var last amqp.Delivery
		select {
		case last = <-deliveries:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
		seen(stampOf(last.Body))
		for count := 1; ; count++ {
			select {
			case next := <-deliveries:
				last = next
				seen(stampOf(last.Body))
				if count+1 < q.take {
					continue
				}
				count++
			default:
			}
			return count, last.Ack(true)
		}
	}, nil
}
