package main

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

const (
	callTimeout  = 30 * time.Second
	messageBytes = 64 << 20
)

// raw passes bytes through: requests are encoded before the clock runs, and answers are read by fields.
type raw struct{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(value any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(value.([]byte))}, nil
}

func (raw) Unmarshal(data mem.BufferSlice, value any) error {
	*value.(*[]byte) = data.Materialize()
	return nil
}

// channels are the connections that callers share.
type channels []*grpc.ClientConn

func dial(given options) (channels, error) {
	var made channels
	for range min(given.connections, given.callers) {
		channel, err := grpc.NewClient(given.endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.ForceCodecV2(raw{}),
				grpc.MaxCallRecvMsgSize(messageBytes), grpc.MaxCallSendMsgSize(messageBytes)))
		if err != nil {
			return nil, err
		}
		channel.Connect()
		made = append(made, channel)
	}
	return made, nil
}

func (c channels) of(caller int) *grpc.ClientConn { return c[caller%len(c)] }

func (c channels) close() {
	for _, channel := range c {
		_ = channel.Close()
	}
}

// call is one unary call with a deadline, as clients make it.
func call(ctx context.Context, channel *grpc.ClientConn, method string, request []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var answer []byte
	err := channel.Invoke(ctx, method, request, &answer)
	return answer, err
}

// ask is one unary call of messages, for what is not measured.
func ask(ctx context.Context, channel *grpc.ClientConn, method string, request, answer proto.Message) error {
	encoded, err := proto.Marshal(request)
	if err != nil {
		return err
	}
	got, err := call(ctx, channel, method, encoded)
	if err != nil {
		return err
	}
	return proto.Unmarshal(got, answer)
}

// number is the number of a field in the contract.
func number(message proto.Message, name protoreflect.Name) protowire.Number {
	return message.ProtoReflect().Descriptor().Fields().ByName(name).Number()
}

// fields calls visit for every field of an encoded message whose value is bytes.
func fields(encoded []byte, visit func(number protowire.Number, value []byte)) error {
	for len(encoded) > 0 {
		number, kind, size := protowire.ConsumeTag(encoded)
		if size < 0 {
			return fmt.Errorf("an answer cannot be read: %w", protowire.ParseError(size))
		}
		encoded = encoded[size:]
		if kind == protowire.BytesType {
			value, size := protowire.ConsumeBytes(encoded)
			if size < 0 {
				return fmt.Errorf("an answer cannot be read: %w", protowire.ParseError(size))
			}
			visit(number, value)
			encoded = encoded[size:]
			continue
		}
		if size = protowire.ConsumeFieldValue(number, kind, encoded); size < 0 {
			return fmt.Errorf("an answer cannot be read: %w", protowire.ParseError(size))
		}
		encoded = encoded[size:]
	}
	return nil
}

// appendBytes adds one field to an encoded message.
func appendBytes[value string | []byte](to []byte, number protowire.Number, v value) []byte {
	to = protowire.AppendTag(to, number, protowire.BytesType)
	to = protowire.AppendVarint(to, uint64(len(v)))
	return append(to, v...)
}
