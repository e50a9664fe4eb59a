// Send, pop, extend, ack, and read an error, with nothing but stubs made from the contract:
//
//	./generate.sh && go run . [ENDPOINT [TOPIC [GROUP]]]
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	popmq "popmq.dev/examples/go/popmqv1"
)

func main() {
	args := append(os.Args[1:], []string{"127.0.0.1:8081", "greetings", "go"}[min(len(os.Args)-1, 3):]...)
	if err := run(args[0], args[1], args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

func run(endpoint, topic, group string) error {
	conn, err := grpc.NewClient(endpoint,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(20<<20))) // a Pop may ask for 16 MiB; the default is 4
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()

	consumer := &consumer{popmq.NewBrokerClient(conn), topic, group}
	if err := prepare(ctx, popmq.NewAdminClient(conn), topic, group); err != nil {
		return err
	}
	if err := send(ctx, consumer.broker, topic); err != nil {
		return err
	}
	for {
		handled, err := consumer.once(ctx)
		if err != nil {
			return err
		}
		if handled == 0 {
			break
		}
	}

	_, err = consumer.broker.Pop(ctx, &popmq.PopRequest{Topic: "no-such-topic", Group: group})
	return tell(err)
}

// prepare makes the topic and the group; both calls succeed when they exist with these settings.
func prepare(ctx context.Context, admin popmq.AdminClient, topic, group string) error {
	if _, err := admin.CreateTopic(ctx, &popmq.CreateTopicRequest{Topic: &popmq.Topic{Name: topic}}); err != nil {
		return err
	}
	_, err := admin.CreateGroup(ctx, &popmq.CreateGroupRequest{Group: &popmq.Group{Name: group}})
	return err
}

func send(ctx context.Context, broker popmq.BrokerClient, topic string) error {
	var messages []*popmq.Message
	for _, word := range []string{"one", "two", "drei – ✓"} {
		messages = append(messages, &popmq.Message{
			Body:       []byte("go " + word),
			Tag:        "hello",
			Keys:       []string{word},
			Properties: map[string]string{"language": "go"},
			BornMs:     time.Now().UnixMilli(),
		})
	}
	answer, err := broker.Send(ctx, &popmq.SendRequest{Topic: topic, Messages: messages})
	if err != nil {
		return err
	}
	for _, result := range answer.Results {
		if result.Error != nil { // an entry fails alone
			return refusal(result.Error)
		}
	}
	fmt.Printf("sent %d to queue %d from offset %d\n", len(answer.Results), answer.Results[0].Queue, answer.Results[0].Offset)
	return nil
}

type consumer struct {
	broker       popmq.BrokerClient
	topic, group string
}

// once handles one batch: takes more time for it, does the work, and finishes it. It returns the number of messages.
func (c *consumer) once(ctx context.Context) (int, error) {
	batch, err := c.broker.Pop(ctx, &popmq.PopRequest{
		Topic: c.topic, Group: c.group, MaxMessages: 32, WaitMs: 500, InvisibleMs: 5_000,
	})
	if err != nil || len(batch.Deliveries) == 0 {
		return 0, err
	}
	var handles []string
	for _, delivery := range batch.Deliveries {
		handles = append(handles, delivery.Handle)
	}

	until, err := c.extend(ctx, handles, time.Minute)
	if err != nil {
		return 0, err
	}
	fmt.Printf("extended %d by %d ms\n", len(handles), until-batch.InvisibleUntilMs)
	for _, delivery := range batch.Deliveries {
		fmt.Printf("popped attempt %d: %s %v\n", delivery.Attempt, delivery.Message.Body, delivery.Message.Properties)
	}

	acked, err := c.broker.Ack(ctx, &popmq.AckRequest{Group: c.group, Handles: handles})
	if err != nil {
		return 0, err
	}
	for _, result := range acked.Results { // empty: all succeeded
		if result.Error != nil {
			return 0, refusal(result.Error)
		}
	}
	fmt.Printf("acked %d\n", len(handles))
	return len(handles), nil
}

// extend ends the leases of these deliveries so long from now, and returns when that is.
func (c *consumer) extend(ctx context.Context, handles []string, invisible time.Duration) (int64, error) {
	var changes []*popmq.InvisibleTimeChange
	for _, handle := range handles {
		changes = append(changes, &popmq.InvisibleTimeChange{
			Handle: handle,
			Change: &popmq.InvisibleTimeChange_Extend{Extend: &popmq.Extend{InvisibleMs: invisible.Milliseconds()}},
		})
	}
	answer, err := c.broker.ChangeInvisibleTime(ctx, &popmq.ChangeInvisibleTimeRequest{Group: c.group, Changes: changes})
	if err != nil {
		return 0, err
	}
	var until int64
	for _, result := range answer.Results {
		if result.Error != nil {
			return 0, refusal(result.Error)
		}
		until = result.VisibleMs
	}
	return until, nil
}

// tell prints why a call was refused. The details are popmq.v1.ErrorInfo: importing the stubs is enough to read them.
func tell(err error) error {
	refused := status.Convert(err)
	for _, detail := range refused.Details() {
		if info, ok := detail.(*popmq.ErrorInfo); ok {
			fmt.Printf("refused %s %s field=%s retryable=%t: %s\n", refused.Code(), info.Code, info.Field, info.Retryable, info.Message)
			fmt.Printf("advice %s\n", info.Action)
			return nil
		}
	}
	return fmt.Errorf("an answer without popmq.v1.ErrorInfo: %w", err)
}

func refusal(info *popmq.ErrorInfo) error {
	return fmt.Errorf("%s: %s", info.Code, info.Message)
}
