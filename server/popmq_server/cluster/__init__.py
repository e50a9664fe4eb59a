"""The cluster engine: the contract of contract/ in front of an Apache RocketMQ 5 cluster. It keeps nothing.

So far it is the parts that need no connection: pure functions, and objects that a test builds alone. What will call
them, over the brokers' own protocol (popmq_remoting):

    protocols/ ─▶ Engine of contract/                                                  not built yet
                   │
       Send        ├─▶ names ─▶ messages/to_broker ─▶ gathering ─▶ layout, message_groups ─▶ Cluster.call ─▶ refusals
       Pop         ├─▶ names ─▶ Cluster.call ─▶ messages/from_broker ─▶ signed/handles
       Ack, …      ├─▶ signed/handles ─▶ Cluster.call ─▶ refusals
       Recall      ├─▶ signed/recalls ─▶ Cluster.call
       transaction ├─▶ signed/transactions ─▶ Cluster.call
       info        └─▶ promises

    signed/           what a client hands back later says all that a gateway needs, so any gateway can serve it:
      secrets           the secrets that gateways share, and signatures made with them
      handles           deliveries: the broker's own handle, and the topic
      transactions      half messages: where they are
      recalls           delayed messages: the broker's own recall handle, passed through
    layout            queue 0 … N−1 ↔ broker and queue id, as all gateways see it
    message_groups    message group → queue
    names             topics and groups, as PopMQ and as RocketMQ call them
    messages/         a popmq.v1.Message ↔ a body, properties and flags
    gathering         single sends of one turn of the event loop → requests
    refusals          RocketMQ's response codes → refusals of the contract
    promises          what this engine lacks, and what it promises less

It imports contract/, values/ and popmq_remoting, and nothing of embedded/.

See docs/decisions/0051-a-gateway-keeps-nothing.md.
"""
