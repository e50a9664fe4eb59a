package main

import "fmt"

var targets = map[string]func(options) (target, error){
	"popmq": openPopMQ, "rocketmq": openRocketMQ, "redis": openRedis, "nats": openNATS, "rabbitmq": openRabbitMQ,
}

func open(given options) (target, error) {
	opener, ok := targets[given.target]
	if !ok {
		return nil, fmt.Errorf("there is no target %q", given.target)
	}
	return opener(given)
}
