'use strict';
// Send, pop, extend, ack, and read an error:  node quickstart.js [ENDPOINT [TOPIC [GROUP]]]

const { connect, errorInfo, orThrow, grpc } = require('./popmq');

const [endpoint = '127.0.0.1:8081', topic = 'greetings', group = 'node'] = process.argv.slice(2);

async function main() {
  const { broker, admin, close } = connect(endpoint);
  try {
    await admin.createTopic({ topic: { name: topic } }); // succeeds when it exists with these settings
    await admin.createGroup({ group: { name: group } });

    const messages = ['one', 'two', 'drei – ✓'].map((word) => ({
      body: Buffer.from(`node ${word}`),
      tag: 'hello',
      keys: [word],
      properties: { language: 'node' },
      bornMs: Date.now(),
    }));
    const sent = orThrow((await broker.send({ topic, messages })).results);
    console.log(`sent ${sent.length} to queue ${sent[0].queue} from offset ${sent[0].offset}`);

    for (;;) {
      const answer = await broker.pop({ topic, group, maxMessages: 32, waitMs: 500, invisibleMs: 5000 });
      if (answer.deliveries.length === 0) break;
      await work(broker, answer);
    }

    await broker.pop({ topic: 'no-such-topic', group }).catch(tell);
  } finally {
    close();
  }
}

/** Handles one batch: takes more time for it, does the work, and finishes it. */
async function work(broker, { deliveries, invisibleUntilMs }) {
  const handles = deliveries.map((delivery) => delivery.handle);
  const changes = handles.map((handle) => ({ handle, extend: { invisibleMs: 60_000 } }));
  const [extended] = orThrow((await broker.changeInvisibleTime({ group, changes })).results);
  console.log(`extended ${handles.length} by ${extended.visibleMs - invisibleUntilMs} ms`);

  for (const { message, attempt } of deliveries) {
    console.log(`popped attempt ${attempt}: ${message.body} ${JSON.stringify(message.properties)}`);
  }
  orThrow((await broker.ack({ group, handles })).results); // no results: all succeeded
  console.log(`acked ${handles.length}`);
}

function tell(error) {
  const info = errorInfo(error);
  if (!info) throw error;
  console.log(`refused ${grpc.status[error.code]} ${info.code} field=${info.field} retryable=${info.retryable}: ${info.message}`);
  console.log(`advice ${info.action}`);
}

main().catch((error) => {
  console.error(`quickstart: ${error.message}`);
  process.exitCode = 1;
});
