package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// streams are Redis Streams with a consumer group.
type streams struct {
	options
	client *redis.Client
}

const field = "b"

func openRedis(given options) (target, error) {
	client := redis.NewClient(&redis.Options{Addr: given.endpoint, PoolSize: given.callers + listeners, ReadTimeout: callTimeout})
	return &streams{given, client}, client.Ping(context.Background()).Err()
}

func (s *streams) close() { _ = s.client.Close() }

func (s *streams) prepare(topics []string) error {
	for _, topic := range topics {
		if err := s.client.XGroupCreateMkStream(context.Background(), topic, s.group, "0").Err(); err != nil {
			return err
		}
	}
	return nil
}

func (s *streams) sender(int) (func(int64) error, error) {
	content, ctx := body(s.bytes), context.Background()
	return func(stamp int64) error {
		binary.BigEndian.PutUint64(content, uint64(stamp))
		adding := &redis.XAddArgs{Stream: s.topic, Values: []any{field, content}}
		if s.batch == 1 {
			return s.client.XAdd(ctx, adding).Err()
		}
		pipeline := s.client.Pipeline()
		for range s.batch {
			pipeline.XAdd(ctx, adding)
		}
		_, err := pipeline.Exec(ctx)
		return err
	}, nil
}

func (s *streams) receiver(caller int) (func(context.Context, func(int64)) (int, error), error) {
	reading := &redis.XReadGroupArgs{
		Group: s.group, Consumer: fmt.Sprint(caller), Streams: []string{s.topic, ">"}, Count: int64(s.take), Block: time.Second,
	}
	return func(ctx context.Context, seen func(int64)) (int, error) {
		read, err := s.client.XReadGroup(ctx, reading).Result()
		if errors.Is(err, redis.Nil) || (err == nil && len(read) == 0) {
			return 0, nil
		}
		if err != nil {
			return 0, err
		}
		var ids []string
		for _, message := range read[0].Messages {
			ids = append(ids, message.ID)
			seen(stampOf([]byte(message.Values[field].(string))))
		}
		return len(ids), s.client.XAck(ctx, s.topic, s.group, ids...).Err()
	}, nil
}
