package main

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "popmq.dev/bench/loadgen/stubs/popmqv1"
)

const (
	brokerService = "/popmq.v1.Broker/"
	adminService  = "/popmq.v1.Admin/"
	waitMs        = 1_000
	leaseMs       = 60_000
)

// popmq speaks popmq.v1.
type popmq struct {
	options
	channels
}

func openPopMQ(given options) (target, error) {
	channels, err := dial(given)
	return &popmq{given, channels}, err
}

func (p *popmq) prepare(topics []string) error {
	ctx := context.Background()
	for _, topic := range topics {
		request := &pb.CreateTopicRequest{Topic: &pb.Topic{Name: topic}}
		if err := ask(ctx, p.of(0), adminService+"CreateTopic", request, &pb.CreateTopicResponse{}); err != nil {
			return err
		}
	}
	request := &pb.CreateGroupRequest{Group: &pb.Group{Name: p.group}}
	return ask(ctx, p.of(0), adminService+"CreateGroup", request, &pb.CreateGroupResponse{})
}

func (p *popmq) sender(caller int) (func(int64) error, error) {
	request, content := &pb.SendRequest{Topic: p.topic}, body(p.bytes)
	for place := range p.batch {
		request.Messages = append(request.Messages, &pb.Message{MessageId: uniqueID(caller, place), Body: content})
	}
	made, err := newTemplate(request)
	channel, results := p.of(caller), number(&pb.SendResponse{}, "results")
	return func(stamp int64) error {
		answer, err := call(context.Background(), channel, brokerService+"Send", made.next(stamp))
		if err != nil {
			return err
		}
		return counted(answer, results, p.batch)
	}, err
}

// counted checks that every message of a request has its result.
func counted(answer []byte, results protowire.Number, wanted int) error {
	found := 0
	err := fields(answer, func(number protowire.Number, _ []byte) {
		if number == results {
			found++
		}
	})
	if err == nil && found != wanted {
		return fmt.Errorf("%d results for %d messages", found, wanted)
	}
	return err
}

func (p *popmq) receiver(caller int) (func(context.Context, func(int64)) (int, error), error) {
	request, err := proto.Marshal(&pb.PopRequest{
		Topic: p.topic, Group: p.group, MaxMessages: uint32(p.take), MaxBytes: 16 << 20, WaitMs: waitMs, InvisibleMs: leaseMs,
	})
	channel := p.of(caller)
	deliveries, handle := number(&pb.PopResponse{}, "deliveries"), number(&pb.Delivery{}, "handle")
	message, content := number(&pb.Delivery{}, "message"), number(&pb.Message{}, "body")
	group, handles := number(&pb.AckRequest{}, "group"), number(&pb.AckRequest{}, "handles")
	head := appendBytes(nil, group, p.group)
	return func(ctx context.Context, seen func(int64)) (int, error) {
		answer, err := call(ctx, channel, brokerService+"Pop", request)
		if err != nil {
			return 0, err
		}
		ack, count := append([]byte(nil), head...), 0
		var broken error
		each := func(number protowire.Number, value []byte) {
			switch number {
			case handle:
				ack = appendBytes(ack, handles, value)
				count++
			case message:
				broken = fields(value, func(number protowire.Number, value []byte) {
					if number == content {
						seen(stampOf(value))
					}
				})
			}
		}
		err = fields(answer, func(number protowire.Number, value []byte) {
			if number == deliveries && broken == nil {
				broken = fields(value, each)
			}
		})
		if err != nil || broken != nil || count == 0 {
			return 0, first(err, broken)
		}
		return count, acked(ctx, p, caller, ack)
	}, err
}

// acked acknowledges, and reports handles that were refused.
func acked(ctx context.Context, p *popmq, caller int, ack []byte) error {
	answer, err := call(ctx, p.of(caller), brokerService+"Ack", ack)
	if err != nil || len(answer) == 0 {
		return err
	}
	var read pb.AckResponse
	if err := proto.Unmarshal(answer, &read); err != nil {
		return err
	}
	for _, result := range read.Results {
		if result.Error != nil {
			return fmt.Errorf("an ack was refused: %v", result.Error)
		}
	}
	return nil
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
