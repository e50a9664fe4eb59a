// The driver of the Go client. Lines of JSON (tests/interop/README.md) become calls of its API.
//
//	stdin ─▶ main ─▶ a goroutine for each command ─▶ the client named in it
//	                                               ◀─ answer, through say
//	the client's goroutines ─▶ script (listener, checker) ─▶ events, through say
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/metadata"
	v2 "github.com/apache/rocketmq-clients/golang/v5/protocol/v2"
)

const can = "simple change push transaction recall priority tls access_key namespace lite_push"

// A stopper is any client: how its users shut it down.
type stopper interface{ GracefulStop() error }

type driver struct {
	lock    sync.Mutex
	clients map[string]stopper
	held    map[string]*rocketmq.MessageView
}

var stdout sync.Mutex

func say(line map[string]any) {
	text, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	stdout.Lock()
	defer stdout.Unlock()
	fmt.Println(string(text))
}

func main() {
	// The client logs into a file of the home directory unless it is told otherwise.
	if len(os.Args) > 1 {
		os.Setenv(rocketmq.CLIENT_LOG_ROOT, os.Args[1])
		rocketmq.ResetLogger()
	}
	say(map[string]any{
		"event": "hello", "client": "go", "version": metadata.VersionValue, "can": strings.Fields(can),
	})
	d := &driver{clients: map[string]stopper{}, held: map[string]*rocketmq.MessageView{}}
	lines := bufio.NewReader(os.Stdin)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var c command
		if err := json.Unmarshal(line, &c); err != nil {
			panic(err)
		}
		go d.answer(&c)
	}
}

func (d *driver) answer(c *command) {
	ok, err := d.execute(c)
	if err != nil {
		say(map[string]any{"id": c.Id, "error": told(err)})
	} else {
		say(map[string]any{"id": c.Id, "ok": ok})
	}
	if c.Do == "quit" {
		os.Exit(0)
	}
}

// told is an error as the protocol has it; the client shows the code of what the server refused.
func told(err error) map[string]any {
	answer := map[string]any{"kind": fmt.Sprintf("%T", err), "message": err.Error()}
	var status *rocketmq.ErrRpcStatus
	if errors.As(err, &status) {
		answer["code"], answer["kind"] = status.GetCode(), fmt.Sprintf("%T", status)
	}
	return answer
}

func (d *driver) execute(c *command) (any, error) {
	switch c.Do {
	case "producer":
		return d.started(c, newProducer)
	case "simple":
		return d.started(c, newSimple)
	case "push":
		return d.started(c, newPush)
	case "lite_push":
		return d.started(c, newLitePush)
	case "send":
		return send(client[rocketmq.Producer](d, c), c)
	case "recall":
		id, err := client[rocketmq.Producer](d, c).Recall(context.Background(), c.Topic, c.RecallHandle)
		return map[string]any{"message_id": id}, err
	case "receive":
		return d.receive(c)
	case "ack":
		return struct{}{}, client[rocketmq.SimpleConsumer](d, c).Ack(context.Background(), d.view(c))
	case "change":
		return struct{}{}, client[rocketmq.SimpleConsumer](d, c).ChangeInvisibleDuration(d.view(c), ms(c.InvisibleMs))
	case "subscribe":
		return struct{}{}, client[subscriber](d, c).Subscribe(c.Topic, c.Filter.expression())
	case "unsubscribe":
		return struct{}{}, client[subscriber](d, c).Unsubscribe(c.Topic)
	case "lite_subscribe":
		return struct{}{}, client[rocketmq.LitePushConsumer](d, c).SubscribeLite(c.LiteTopic)
	case "lite_unsubscribe":
		return struct{}{}, client[rocketmq.LitePushConsumer](d, c).UnSubscribeLite(c.LiteTopic)
	case "stop":
		return struct{}{}, client[stopper](d, c).GracefulStop()
	case "quit":
		return struct{}{}, nil
	}
	return nil, errors.New("unsupported: " + c.Do)
}

type subscriber interface {
	Subscribe(topic string, filter *rocketmq.FilterExpression) error
	Unsubscribe(topic string) error
}

func client[T any](d *driver, c *command) T {
	d.lock.Lock()
	defer d.lock.Unlock()
	return d.clients[c.Name].(T)
}

func (d *driver) view(c *command) *rocketmq.MessageView {
	d.lock.Lock()
	defer d.lock.Unlock()
	return d.held[c.Held]
}

func (d *driver) started(c *command, start func(*command) (stopper, error)) (any, error) {
	started, err := start(c)
	if err != nil {
		return nil, err
	}
	d.lock.Lock()
	defer d.lock.Unlock()
	d.clients[c.Name] = started
	return struct{}{}, nil
}

func newProducer(c *command) (stopper, error) {
	options := []rocketmq.ProducerOption{rocketmq.WithTopics(c.Topics...)}
	if len(c.Checker) > 0 && string(c.Checker) != "null" {
		checker := &rocketmq.TransactionChecker{Check: newScript(c).check}
		options = append(options, rocketmq.WithTransactionChecker(checker))
	}
	producer, err := rocketmq.NewProducer(c.config(), options...)
	if err != nil {
		return nil, err
	}
	return producer, producer.Start()
}

func newSimple(c *command) (stopper, error) {
	consumer, err := rocketmq.NewSimpleConsumer(c.config(),
		rocketmq.WithSimpleAwaitDuration(ms(c.AwaitMs)),
		rocketmq.WithSimpleSubscriptionExpressions(c.expressions()))
	if err != nil {
		return nil, err
	}
	return consumer, consumer.Start()
}

func newPush(c *command) (stopper, error) {
	options := []rocketmq.PushConsumerOption{
		rocketmq.WithPushSubscriptionExpressions(c.expressions()),
		rocketmq.WithPushMessageListener(&rocketmq.FuncMessageListener{Consume: newScript(c).consume}),
	}
	if c.Threads > 0 {
		options = append(options, rocketmq.WithPushConsumptionThreadCount(c.Threads))
	}
	consumer, err := rocketmq.NewPushConsumer(c.config(), options...)
	if err != nil {
		return nil, err
	}
	return consumer, consumer.Start()
}

func newLitePush(c *command) (stopper, error) {
	listener := &rocketmq.FuncMessageListener{Consume: newScript(c).consume}
	lite := rocketmq.NewLitePushConsumerConfig(c.Topic, 30*time.Second)
	consumer, err := rocketmq.NewLitePushConsumer(c.config(), lite, rocketmq.WithPushMessageListener(listener))
	if err != nil {
		return nil, err
	}
	if err := consumer.Start(); err != nil {
		return nil, err
	}
	for _, topic := range c.LiteTopics {
		if err := consumer.SubscribeLite(topic); err != nil {
			return nil, err
		}
	}
	return consumer, nil
}

func send(producer rocketmq.Producer, c *command) (any, error) {
	message, err := c.Message.toSend()
	if err != nil {
		return nil, err
	}
	if c.Transaction == "" {
		receipts, err := producer.Send(context.Background(), message)
		return receipt(receipts), err
	}
	transaction := producer.BeginTransaction()
	receipts, err := producer.SendWithTransaction(context.Background(), message, transaction)
	if err != nil {
		return nil, err
	}
	switch c.Transaction {
	case "commit":
		err = transaction.Commit()
	case "rollback":
		err = transaction.RollBack()
	}
	return receipt(receipts), err
}

func receipt(receipts []*rocketmq.SendReceipt) any {
	if len(receipts) == 0 {
		return nil
	}
	one := receipts[0]
	return map[string]any{
		"message_id": one.MessageID, "transaction_id": one.TransactionId, "recall_handle": one.RecallHandle,
		"offset": one.Offset,
	}
}

func (d *driver) receive(c *command) (any, error) {
	consumer := client[rocketmq.SimpleConsumer](d, c)
	views, err := consumer.Receive(context.Background(), c.Max, ms(c.InvisibleMs))
	if status, ok := rocketmq.AsErrRpcStatus(err); ok && status.GetCode() == int32(v2.Code_MESSAGE_NOT_FOUND) {
		views, err = nil, nil // the client's way to say that there was none
	}
	d.lock.Lock()
	defer d.lock.Unlock()
	messages := []map[string]any{}
	for _, view := range views {
		message := came(view)
		name := fmt.Sprintf("m%d", len(d.held))
		d.held[name], message["held"] = view, name
		messages = append(messages, message)
	}
	return map[string]any{"messages": messages}, err
}
