package main

import (
	"encoding/json"
	"sort"
	"time"

	rocketmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

// A command has the fields of all verbs; those that a verb lacks are zero.
type command struct {
	Id            any               `json:"id"`
	Do            string            `json:"do"`
	Name          string            `json:"name"`
	Endpoint      string            `json:"endpoint"`
	AccessKey     string            `json:"access_key"`
	SecretKey     string            `json:"secret_key"`
	Namespace     string            `json:"namespace"`
	Tls           any               `json:"tls"`
	Topic         string            `json:"topic"`
	Topics        []string          `json:"topics"`
	Group         string            `json:"group"`
	Subscriptions map[string]filter `json:"subscriptions"`
	Filter        filter            `json:"filter"`
	AwaitMs       int64             `json:"await_ms"`
	Max           int32             `json:"max"`
	InvisibleMs   int64             `json:"invisible_ms"`
	Held          string            `json:"held"`
	Message       message           `json:"message"`
	Transaction   string            `json:"transaction"`
	RecallHandle  string            `json:"recall_handle"`
	Checker       json.RawMessage   `json:"checker"`
	Fail          map[string]int    `json:"fail"`
	TakeMs        json.RawMessage   `json:"take_ms"`
	Threads       int32             `json:"threads"`
	LiteTopic     string            `json:"lite_topic"`
	LiteTopics    []string          `json:"lite_topics"`
}

type filter struct {
	Tag string `json:"tag"`
	Sql string `json:"sql"`
}

// A message to send. Its body comes and goes in base64, as encoding/json does it.
type message struct {
	Topic      string            `json:"topic"`
	Body       []byte            `json:"body"`
	Tag        string            `json:"tag"`
	Keys       []string          `json:"keys"`
	Properties map[string]string `json:"properties"`
	Group      string            `json:"group"`
	DelayMs    *int64            `json:"delay_ms"`
	Priority   *int32            `json:"priority"`
	LiteTopic  string            `json:"lite_topic"`
}

func ms(milliseconds int64) time.Duration {
	return time.Duration(milliseconds) * time.Millisecond
}

// config also turns TLS on or off: for the whole process, which is all that this client offers.
func (c *command) config() *rocketmq.Config {
	if c.Tls != "default" {
		rocketmq.EnableSsl = c.Tls == true
	}
	return &rocketmq.Config{
		Endpoint:      c.Endpoint,
		NameSpace:     c.Namespace,
		ConsumerGroup: c.Group,
		Credentials:   &credentials.SessionCredentials{AccessKey: c.AccessKey, AccessSecret: c.SecretKey},
	}
}

func (f filter) expression() *rocketmq.FilterExpression {
	switch {
	case f.Sql != "":
		return rocketmq.NewFilterExpressionWithType(f.Sql, rocketmq.SQL92)
	case f.Tag != "":
		return rocketmq.NewFilterExpression(f.Tag)
	}
	return rocketmq.SUB_ALL
}

func (c *command) expressions() map[string]*rocketmq.FilterExpression {
	expressions := map[string]*rocketmq.FilterExpression{}
	for topic, filter := range c.Subscriptions {
		expressions[topic] = filter.expression()
	}
	return expressions
}

func (m *message) toSend() (*rocketmq.Message, error) {
	message := &rocketmq.Message{Topic: m.Topic, Body: m.Body}
	if m.Tag != "" {
		message.SetTag(m.Tag)
	}
	if len(m.Keys) > 0 {
		message.SetKeys(m.Keys...)
	}
	for key, value := range m.Properties {
		message.AddProperty(key, value)
	}
	if m.Group != "" {
		message.SetMessageGroup(m.Group)
	}
	if m.DelayMs != nil {
		message.SetDelayTimestamp(time.Now().Add(ms(*m.DelayMs)))
	}
	if m.LiteTopic != "" {
		message.SetLiteTopic(m.LiteTopic)
	}
	if m.Priority != nil {
		return message, message.SetPriority(*m.Priority)
	}
	return message, nil
}

// came is a message as the client shows it, which hides its priority.
func came(view *rocketmq.MessageView) map[string]any {
	keys := append([]string{}, view.GetKeys()...)
	sort.Strings(keys)
	message := map[string]any{
		"topic": view.GetTopic(), "body": view.GetBody(), "tag": view.GetTag(), "keys": keys,
		"properties": view.GetProperties(), "message_id": view.GetMessageId(), "group": view.GetMessageGroup(),
		"born_host": view.GetBornHost(), "attempt": view.GetDeliveryAttempt(),
	}
	if view.GetLiteTopic() != "" {
		message["lite_topic"] = view.GetLiteTopic()
	}
	if born := view.GetBornTimestamp(); born != nil {
		message["born_at_ms"] = born.UnixMilli()
	}
	if due := view.GetDeliveryTimestamp(); due != nil {
		message["deliver_at_ms"] = due.UnixMilli()
	}
	return message
}
