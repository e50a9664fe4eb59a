package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "popmq.dev/bench/loadgen/stubs/rocketmqv2"
)

const messagingService = "/apache.rocketmq.v2.MessagingService/"

// rocketmq speaks apache.rocketmq.v2 as its official clients do: settings first, the same headers, an id in each call.
type rocketmq struct {
	options
	channels
	client   string
	requests uint64
	settings grpc.ClientStream
}

func openRocketMQ(given options) (target, error) {
	channels, err := dial(given)
	return &rocketmq{options: given, channels: channels, client: fmt.Sprintf("loadgen@%d@0@1", os.Getpid())}, err
}

// named adds the headers of a call.
func (r *rocketmq) named(ctx context.Context, id string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "x-mq-client-id", r.client, "x-mq-language", "GO",
		"x-mq-client-version", "5.1.4", "x-mq-protocol", "v2", "x-mq-request-id", id)
}

func resource(name string) *pb.Resource { return &pb.Resource{Name: name} }

// prepare lets the group read each topic once while it is empty: a new group of RocketMQ begins at the end of a topic.
// The topics themselves are made by its administration tool.
func (r *rocketmq) prepare(topics []string) error {
	for _, topic := range topics {
		r.topic = topic
		receive, err := r.receiver(0)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		_, err = receive(ctx, func(int64) {})
		over := ctx.Err() != nil
		cancel()
		if err != nil && !over {
			return err
		}
	}
	return nil
}

// introduce opens the stream on which a client tells its settings, and waits for the broker's answer.
func (r *rocketmq) introduce(settings *pb.Settings) error {
	settings.UserAgent = &pb.UA{Language: pb.Language_GOLANG, Version: "5.1.4", Hostname: "loadgen"}
	encoded, err := proto.Marshal(&pb.TelemetryCommand{Command: &pb.TelemetryCommand_Settings{Settings: settings}})
	if err != nil {
		return err
	}
	kind := &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}
	ctx := r.named(context.Background(), "settings")
	if r.settings, err = r.of(0).NewStream(ctx, kind, messagingService+"Telemetry"); err != nil {
		return err
	}
	if err := r.settings.SendMsg(encoded); err != nil {
		return err
	}
	var answer []byte
	return r.settings.RecvMsg(&answer)
}

func (r *rocketmq) sender(caller int) (func(int64) error, error) {
	if caller == 0 {
		publishing := &pb.Publishing{Topics: []*pb.Resource{resource(r.topic)}, MaxBodySize: 4 << 20}
		kind := pb.ClientType_PRODUCER
		if err := r.introduce(&pb.Settings{ClientType: &kind, PubSub: &pb.Settings_Publishing{Publishing: publishing}}); err != nil {
			return nil, err
		}
	}
	request, content := &pb.SendMessageRequest{}, body(r.bytes)
	for place := range r.batch {
		request.Messages = append(request.Messages, &pb.Message{
			Topic: resource(r.topic), Body: content,
			SystemProperties: &pb.SystemProperties{
				MessageId: uniqueID(caller, place), MessageType: pb.MessageType_NORMAL, BodyEncoding: pb.Encoding_IDENTITY,
				BornTimestamp: timestamppb.Now(), BornHost: "loadgen",
			},
		})
	}
	made, err := newTemplate(request)
	channel, status := r.of(caller), number(&pb.SendMessageResponse{}, "status")
	return func(stamp int64) error {
		ctx := r.named(context.Background(), strconv.Itoa(caller)+"-"+strconv.FormatInt(stamp, 36))
		answer, err := call(ctx, channel, messagingService+"SendMessage", made.next(stamp))
		if err != nil {
			return err
		}
		return accepted(answer, status)
	}, err
}

// accepted reads the status of an answer.
func accepted(answer []byte, field protowire.Number) error {
	var status pb.Status
	err := fields(answer, func(number protowire.Number, value []byte) {
		if number == field {
			_ = proto.Unmarshal(value, &status)
		}
	})
	if err == nil && status.Code != pb.Code_OK {
		return fmt.Errorf("the broker answered %s: %s", status.Code, status.Message)
	}
	return err
}

func (r *rocketmq) receiver(caller int) (func(context.Context, func(int64)) (int, error), error) {
	all := &pb.FilterExpression{Type: pb.FilterType_TAG, Expression: "*"}
	if caller == 0 {
		entry := &pb.SubscriptionEntry{Topic: resource(r.topic), Expression: all}
		subscription := &pb.Subscription{Group: resource(r.group), Subscriptions: []*pb.SubscriptionEntry{entry}}
		kind := pb.ClientType_SIMPLE_CONSUMER
		if err := r.introduce(&pb.Settings{ClientType: &kind, PubSub: &pb.Settings_Subscription{Subscription: subscription}}); err != nil {
			return nil, err
		}
	}
	queue, err := r.queue(caller)
	if err != nil {
		return nil, err
	}
	request, err := proto.Marshal(&pb.ReceiveMessageRequest{
		Group: resource(r.group), MessageQueue: queue, FilterExpression: all, BatchSize: int32(r.take),
		InvisibleDuration: durationpb.New(time.Minute), LongPollingTimeout: durationpb.New(5 * time.Second),
	})
	channel := r.of(caller)
	reader := newDeliveries()
	return func(ctx context.Context, seen func(int64)) (int, error) {
		ctx, cancel := context.WithTimeout(r.named(ctx, strconv.FormatInt(time.Now().UnixNano(), 36)), callTimeout)
		defer cancel()
		kind := &grpc.StreamDesc{ServerStreams: true}
		stream, err := channel.NewStream(ctx, kind, messagingService+"ReceiveMessage")
		if err == nil {
			err = first(stream.SendMsg(request), stream.CloseSend())
		}
		if err != nil {
			return 0, err
		}
		ack, count, err := reader.ack(r, stream, seen)
		if err != nil || count == 0 {
			return 0, err
		}
		answer, err := call(ctx, channel, messagingService+"AckMessage", ack)
		if err != nil {
			return 0, err
		}
		return count, accepted(answer, number(&pb.AckMessageResponse{}, "status"))
	}, err
}

// queue asks which queue to receive from; brokers that pop name one that stands for all.
func (r *rocketmq) queue(caller int) (*pb.MessageQueue, error) {
	host := &pb.Address{Host: "127.0.0.1", Port: 8081}
	request := &pb.QueryAssignmentRequest{
		Topic: resource(r.topic), Group: resource(r.group),
		Endpoints: &pb.Endpoints{Scheme: pb.AddressScheme_IPv4, Addresses: []*pb.Address{host}},
	}
	var answer pb.QueryAssignmentResponse
	ctx := r.named(context.Background(), "assignment")
	if err := ask(ctx, r.of(caller), messagingService+"QueryAssignment", request, &answer); err != nil {
		return nil, err
	}
	if len(answer.Assignments) == 0 {
		return nil, fmt.Errorf("no queue of %s: %v", r.topic, answer.Status)
	}
	return answer.Assignments[caller%len(answer.Assignments)].MessageQueue, nil
}

// deliveries reads the elements of a ReceiveMessage by the numbers of their fields.
type deliveries struct {
	message, system, body, id, handle protowire.Number
	group, topic, entries             protowire.Number
	entryID, entryHandle              protowire.Number
}

func newDeliveries() deliveries {
	message, system, ack := &pb.Message{}, &pb.SystemProperties{}, &pb.AckMessageRequest{}
	return deliveries{
		message: number(&pb.ReceiveMessageResponse{}, "message"), system: number(message, "system_properties"),
		body: number(message, "body"), id: number(system, "message_id"), handle: number(system, "receipt_handle"),
		group: number(ack, "group"), topic: number(ack, "topic"), entries: number(ack, "entries"),
		entryID:     number(&pb.AckMessageEntry{}, "message_id"),
		entryHandle: number(&pb.AckMessageEntry{}, "receipt_handle"),
	}
}

// ack reads a stream to its end; returns the encoded AckMessageRequest of all its messages, and their number.
func (d deliveries) ack(r *rocketmq, stream grpc.ClientStream, seen func(int64)) ([]byte, int, error) {
	name := number(&pb.Resource{}, "name")
	ack := appendBytes(nil, d.group, appendBytes(nil, name, r.group))
	ack = appendBytes(ack, d.topic, appendBytes(nil, name, r.topic))
	for count := 0; ; {
		var element []byte
		if err := stream.RecvMsg(&element); errors.Is(err, io.EOF) {
			return ack, count, nil
		} else if err != nil {
			return nil, 0, err
		}
		var broken error
		err := fields(element, func(number protowire.Number, value []byte) {
			if number == d.message {
				count++
				ack, broken = d.entry(ack, value, seen)
			}
		})
		if err = first(err, broken); err != nil {
			return nil, 0, err
		}
	}
}

// entry adds the entry of one message.
func (d deliveries) entry(ack, message []byte, seen func(int64)) ([]byte, error) {
	var entry []byte
	var broken error
	err := fields(message, func(number protowire.Number, value []byte) {
		switch number {
		case d.body:
			seen(stampOf(value))
		case d.system:
			broken = fields(value, func(number protowire.Number, value []byte) {
				switch number {
				case d.id:
					entry = appendBytes(entry, d.entryID, value)
				case d.handle:
					entry = appendBytes(entry, d.entryHandle, value)
				}
			})
		}
	})
	return appendBytes(ack, d.entries, entry), first(err, broken)
}
