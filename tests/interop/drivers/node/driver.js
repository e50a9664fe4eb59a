// The official Node client as a driver: lines of JSON in, lines of JSON out (tests/interop/README.md is the protocol).

'use strict';

const fs = require('fs');
const readline = require('readline');

// Stdout is for lines of the protocol alone: what the client prints goes to stderr.
const write = line => fs.writeSync(1, JSON.stringify(line) + '\n');
console.log = console.info = console.debug = console.error;

const rocketmq = require('rocketmq-client-nodejs');
const { TransactionResolution, FilterType } = require('rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb');
const { version } = require('rocketmq-client-nodejs/package.json');

const CAN = 'simple change push transaction recall priority tls access_key namespace lite_push'.split(' ');
const RESOLUTIONS = {
  commit: TransactionResolution.COMMIT,
  rollback: TransactionResolution.ROLLBACK,
  unknown: TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED,
};
const silent = { info() {}, warn: console.error, error: console.error, debug() {} };
const clients = new Map();
const held = new Map();
let heldSoFar = 0;

const event = (kind, name, fields) => write({ event: kind, name, at_ms: Date.now(), ...fields });
const sleep = ms => new Promise(resolve => setTimeout(resolve, ms));

// A message as the client shows it.
function asLine(view) {
  return {
    topic: view.topic,
    body: view.body.toString('base64'),
    tag: view.tag || null,
    keys: [...view.keys].sort(),
    properties: Object.fromEntries(view.properties),
    message_id: view.messageId,
    group: view.messageGroup || null,
    deliver_at_ms: view.deliveryTimestamp ? view.deliveryTimestamp.getTime() : null,
    priority: view.priority || null,
    lite_topic: view.liteTopic || null,
    born_at_ms: view.bornTimestamp ? view.bornTimestamp.getTime() : null,
    born_host: view.bornHost,
    attempt: view.deliveryAttempt,
  };
}

function asMessage(line) {
  const message = { topic: line.topic, body: Buffer.from(line.body, 'base64') };
  if (line.tag) message.tag = line.tag;
  if (line.keys) message.keys = line.keys;
  if (line.properties) message.properties = new Map(Object.entries(line.properties));
  if (line.group) message.messageGroup = line.group;
  if (line.delay_ms != null) message.deliveryTimestamp = new Date(Date.now() + line.delay_ms);
  if (line.priority != null) message.priority = line.priority;
  if (line.lite_topic) message.liteTopic = line.lite_topic;
  return message;
}

function asFilter(line) {
  if (line && line.sql) return new rocketmq.FilterExpression(line.sql, FilterType.SQL);
  return new rocketmq.FilterExpression((line && line.tag) || '*');
}

const subscriptions = line => new Map(
  Object.entries(line.subscriptions || {}).map(([ topic, filter ]) => [ topic, asFilter(filter) ]));

function connection(line) {
  const options = { endpoints: line.endpoint, namespace: line.namespace || '', logger: silent };
  if (line.tls === true) options.sslEnabled = true;
  if (line.access_key) options.sessionCredentials = { accessKey: line.access_key, accessSecret: line.secret_key };
  return options;
}

// The n-th check of a message gets the n-th answer.
function checker(line) {
  const answers = [].concat(line.checker);
  const checks = new Map();
  return {
    async check(view) {
      const count = checks.get(view.messageId) || 0;
      checks.set(view.messageId, count + 1);
      const answer = answers[Math.min(count, answers.length - 1)];
      event('check', line.name, { message: asLine(view), answer });
      return RESOLUTIONS[answer];
    },
  };
}

// Takes its time and fails as told.
function listener(line) {
  const fail = { ...line.fail };
  return {
    async consume(view) {
      const body = view.body.toString();
      event('listening', line.name, { message: asLine(view) });
      const take = line.take_ms && typeof line.take_ms === 'object' ? line.take_ms[body] : line.take_ms;
      await sleep(take || 0);
      const left = fail[body] || 0;
      if (left > 0) fail[body] = left - 1;
      event('listened', line.name, { message: asLine(view), ok: left === 0 });
      return left === 0 ? rocketmq.ConsumeResult.SUCCESS : rocketmq.ConsumeResult.FAILURE;
    },
  };
}

async function start(line, client) {
  await client.startup();
  clients.set(line.name, client);
  return {};
}

function hold(view) {
  const name = `m${++heldSoFar}`;
  held.set(name, view);
  return name;
}

const receipt = sent => ({
  message_id: sent.messageId,
  transaction_id: sent.transactionId || null,
  recall_handle: sent.recallHandle || null,
  offset: sent.offset,
});

const verbs = {
  producer(line) {
    const options = { ...connection(line), topics: line.topics || [] };
    if (line.checker) options.checker = checker(line);
    return start(line, new rocketmq.Producer(options));
  },

  async send(line) {
    const producer = clients.get(line.name);
    if (!line.transaction) return receipt(await producer.send(asMessage(line.message)));
    const transaction = producer.beginTransaction();
    const sent = await producer.send(asMessage(line.message), transaction);
    if (line.transaction === 'commit') await transaction.commit();
    if (line.transaction === 'rollback') await transaction.rollback();
    return receipt(sent);
  },

  async recall(line) {
    return { message_id: (await clients.get(line.name).recallMessage(line.topic, line.recall_handle)).messageId };
  },

  simple(line) {
    return start(line, new rocketmq.SimpleConsumer({
      ...connection(line), consumerGroup: line.group, subscriptions: subscriptions(line), awaitDuration: line.await_ms,
    }));
  },

  async receive(line) {
    const views = await clients.get(line.name).receive(line.max, line.invisible_ms);
    return { messages: views.map(view => ({ ...asLine(view), held: hold(view) })) };
  },

  async ack(line) {
    await clients.get(line.name).ack(held.get(line.held));
    return {};
  },

  async change(line) {
    await clients.get(line.name).changeInvisibleDuration(held.get(line.held), line.invisible_ms);
    return {};
  },

  push(line) {
    return start(line, new rocketmq.PushConsumer({
      ...connection(line), consumerGroup: line.group, subscriptions: subscriptions(line), messageListener: listener(line),
    }));
  },

  async subscribe(line) {
    await clients.get(line.name).subscribe(line.topic, asFilter(line.filter));
    return {};
  },

  async unsubscribe(line) {
    clients.get(line.name).unsubscribe(line.topic);
    return {};
  },

  async lite_push(line) {
    const consumer = await new rocketmq.LitePushConsumerBuilder()
      .setClientConfiguration(connection(line))
      .bindTopic(line.topic)
      .setConsumerGroup(line.group)
      .setMessageListener(listener(line))
      .build();
    consumer.shutdown = consumer.shutdown || consumer.close;
    clients.set(line.name, consumer);
    for (const liteTopic of line.lite_topics || []) await consumer.subscribeLite(liteTopic);
    return {};
  },

  async lite_subscribe(line) {
    await clients.get(line.name).subscribeLite(line.lite_topic);
    return {};
  },

  async lite_unsubscribe(line) {
    await clients.get(line.name).unsubscribeLite(line.lite_topic);
    return {};
  },

  async stop(line) {
    const client = clients.get(line.name);
    clients.delete(line.name);
    await client.shutdown();
    return {};
  },

  async quit() {
    return {};
  },
};

async function answer(line) {
  try {
    write({ id: line.id, ok: await verbs[line.do](line) });
  } catch (error) {
    const code = typeof error.code === 'number' ? error.code : null;
    write({ id: line.id, error: { code, kind: error.name || error.constructor.name, message: String(error.message) } });
  }
  if (line.do === 'quit') process.exit(0);
}

process.on('unhandledRejection', error => console.error('unhandled:', error));
process.on('uncaughtException', error => console.error('uncaught:', error));
write({ event: 'hello', client: 'node', version, can: CAN });
readline.createInterface({ input: process.stdin })
  .on('line', text => answer(JSON.parse(text)))
  .on('close', () => process.exit(0));
