"""The cluster engine: the contract of contract/ in front of an Apache RocketMQ 5 cluster. It keeps nothing.

    process/ ─▶ gateway/life ─▶ engine ─▶ a part for each family of operations
                                    sending/    sends, where they go, and which travel together; recalls
                                    popping/    pops, waits, acks, dead letters, session leases
                                    pulling/    reads by offset, modes, what is sent back
                                    inspecting/   peeks, look-ups, pages, dead letters delivered again
                        shared      what all parts stand on:
                          brokers     calls with deadlines, refused in the contract's words; features: what each can do
                          catalog/    topics, groups, layouts, positions: read, remembered for seconds, written
                          signed/     what a client hands back later says all that a gateway needs:
                            secrets     the secrets that gateways share, and signatures made with them
                            handles     deliveries: the broker's own handle, and the topic
                            transactions  half messages: where they are
                            recalls     delayed messages: the broker's own recall handle, passed through
                          background  work that no caller waits for
                          access      settings → how the cluster is reached; files that are replaced

    without a connection, pure functions:
      layout            queue 0 … N−1 ↔ broker and queue id, as all gateways see it
      names             topics and groups, as PopMQ and as RocketMQ call them
      messages/         a popmq.v1.Message ↔ a body, properties and flags
      refusals          RocketMQ's response codes → refusals of the contract
      promises          what this engine lacks, and what it promises less

    gateway/            what is around the engine in its process:
      life                its start and its end
      reach               whether it is reached, for /readyz and the log
      counting            what its metrics show

A process has one engine, and the engine has one object of each part. It imports contract/, values/, monitoring/ and
popmq_remoting, and nothing of embedded/.

See docs/decisions/0051-a-gateway-keeps-nothing.md and docs/decisions/0052-the-engine-over-a-cluster.md.
"""
