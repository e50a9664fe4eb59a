//! The driver of the Rust client. Lines of JSON (tests/interop/README.md) become calls of its API.
//!
//! ```text
//! stdin ─▶ main ─▶ a task for each command ─▶ the client named in it
//!                                          ◀─ answer, through wire::say
//! the client's task ─▶ checker ─▶ event, through wire::say
//! ```
//! The client panics where it meets what it does not know: a panicked command is answered as an error of the kind `panic`.

mod wire;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rocketmq::conf::{ProducerOption, SimpleConsumerOption};
use rocketmq::model::common::FilterExpression;
use rocketmq::model::message::MessageView;
use rocketmq::model::transaction::{Transaction, TransactionChecker, TransactionResolution};
use rocketmq::{Producer, SimpleConsumer};
use serde_json::{json, Value};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::sync::RwLock;

use wire::Failure;

const SHORTEST_POLL_MS: u64 = 6000;

/// A consumer takes topic and filter with every receive: the driver goes round its subscriptions.
struct Simple {
    consumer: SimpleConsumer,
    subscriptions: Mutex<Vec<(String, Value)>>,
    turn: AtomicUsize,
}

enum Client {
    Producer(Producer),
    Simple(Simple),
}

/// Shutting a client down consumes it, so `stop` waits until no call holds it.
type Slot = Arc<RwLock<Option<Client>>>;

#[derive(Default)]
struct Driver {
    clients: Mutex<HashMap<String, Slot>>,
    held: Mutex<HashMap<String, Arc<MessageView>>>,
    received: AtomicUsize,
}

#[tokio::main]
async fn main() {
    let can = ["simple", "transaction", "access_key"];
    wire::say(json!({"event": "hello", "client": "rust", "version": "5.0.0", "can": can}));
    let driver = Arc::new(Driver::default());
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let command: Value = serde_json::from_str(&line).expect("a line of JSON");
        tokio::spawn(answer(driver.clone(), command));
    }
    std::process::exit(0);
}

async fn answer(driver: Arc<Driver>, command: Value) {
    let (id, quit) = (command["id"].clone(), command["do"] == "quit");
    let answer = match tokio::spawn(driver.execute(command)).await {
        Ok(Ok(ok)) => json!({"id": id, "ok": ok}),
        Ok(Err(failure)) => json!({"id": id, "error": failure.json()}),
        Err(panic) => json!({"id": id, "error": {"kind": "panic", "message": wire::panic_text(panic)}}),
    };
    wire::say(answer);
    if quit {
        std::process::exit(0);
    }
}

impl Driver {
    async fn execute(self: Arc<Self>, command: Value) -> Result<Value, Failure> {
        match wire::text(&command, "do").as_str() {
            "producer" => self.put(&command, producer(&command).await?),
            "simple" => self.put(&command, simple(&command).await?),
            "send" => return self.send(&command).await,
            "receive" => return self.receive(&command).await,
            "ack" => self.ack(&command).await?,
            "subscribe" | "unsubscribe" => self.subscribe(&command).await?,
            "stop" => self.stop(&command).await?,
            "quit" => {}
            other => return Err(Failure::unsupported(other)),
        }
        Ok(json!({}))
    }

    fn put(&self, command: &Value, client: Client) {
        let slot = Arc::new(RwLock::new(Some(client)));
        self.clients.lock().unwrap().insert(wire::text(command, "name"), slot);
    }

    fn slot(&self, command: &Value) -> Slot {
        self.clients.lock().unwrap()[&wire::text(command, "name")].clone()
    }

    async fn send(&self, command: &Value) -> Result<Value, Failure> {
        let slot = self.slot(command);
        let client = slot.read().await;
        let Some(Client::Producer(producer)) = client.as_ref() else {
            return Err(Failure::unsupported("send by what is no running producer"));
        };
        let how = command["transaction"].as_str();
        let message = wire::message_to_send(&command["message"], how.is_some())?;
        let Some(how) = how else {
            let receipt = producer.send(message).await?;
            return Ok(json!({"message_id": receipt.message_id()}));
        };
        let transaction = producer.send_transaction_message(message).await?;
        let ids = json!({"message_id": transaction.message_id(), "transaction_id": transaction.transaction_id()});
        match how {
            "commit" => transaction.commit().await?,
            "rollback" => transaction.rollback().await?,
            _ => {}
        }
        Ok(ids)
    }

    async fn receive(&self, command: &Value) -> Result<Value, Failure> {
        let slot = self.slot(command);
        let client = slot.read().await;
        let simple = simple_of(&client)?;
        let (topic, filter) = simple.next();
        let max = command["max"].as_i64().unwrap_or(1) as i32;
        let invisible = Duration::from_millis(command["invisible_ms"].as_u64().unwrap_or(0));
        let views = simple.consumer.receive_with(topic, &filter, max, invisible).await?;
        let messages: Vec<Value> = views.into_iter().map(|view| self.hold(view)).collect();
        Ok(json!({"messages": messages}))
    }

    fn hold(&self, view: MessageView) -> Value {
        let name = format!("m{}", self.received.fetch_add(1, Ordering::Relaxed));
        let mut message = wire::message(&view);
        message["held"] = json!(name);
        self.held.lock().unwrap().insert(name, Arc::new(view));
        message
    }

    async fn ack(&self, command: &Value) -> Result<(), Failure> {
        let view = self.held.lock().unwrap()[&wire::text(command, "held")].clone();
        let slot = self.slot(command);
        let client = slot.read().await;
        Ok(simple_of(&client)?.consumer.ack(view.as_ref()).await?)
    }

    async fn subscribe(&self, command: &Value) -> Result<(), Failure> {
        let slot = self.slot(command);
        let client = slot.read().await;
        let topic = wire::text(command, "topic");
        let mut subscriptions = simple_of(&client)?.subscriptions.lock().unwrap();
        subscriptions.retain(|(other, _)| *other != topic);
        if command["do"] == "subscribe" {
            subscriptions.push((topic, command["filter"].clone()));
        }
        Ok(())
    }

    async fn stop(&self, command: &Value) -> Result<(), Failure> {
        let stopped = self.slot(command).write().await.take();
        match stopped {
            Some(Client::Producer(producer)) => producer.shutdown().await?,
            Some(Client::Simple(simple)) => simple.consumer.shutdown().await?,
            None => {}
        }
        Ok(())
    }
}

fn simple_of(client: &Option<Client>) -> Result<&Simple, Failure> {
    match client {
        Some(Client::Simple(simple)) => Ok(simple),
        _ => Err(Failure::unsupported("receive by what is no running consumer")),
    }
}

impl Simple {
    fn next(&self) -> (String, FilterExpression) {
        let subscriptions = self.subscriptions.lock().unwrap();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let (topic, filter) = &subscriptions[turn % subscriptions.len()];
        (topic.clone(), wire::filter(filter))
    }
}

async fn producer(command: &Value) -> Result<Client, Failure> {
    let mut option = ProducerOption::default();
    option.set_topics(wire::texts(&command["topics"]));
    let connection = wire::connection(command)?;
    let checked = !command["checker"].is_null();
    let mut producer = if checked {
        Producer::new_transaction_producer(option, connection, checker(command))?
    } else {
        Producer::new(option, connection)?
    };
    producer.start().await?;
    Ok(Client::Producer(producer))
}

async fn simple(command: &Value) -> Result<Client, Failure> {
    let subscriptions: Vec<(String, Value)> = match &command["subscriptions"] {
        Value::Object(topics) => topics.iter().map(|(topic, filter)| (topic.clone(), filter.clone())).collect(),
        _ => vec![],
    };
    let mut option = SimpleConsumerOption::default();
    option.set_consumer_group(wire::text(command, "group"));
    option.set_topics(subscriptions.iter().map(|(topic, _)| topic.clone()).collect::<Vec<_>>());
    let mut connection = wire::connection(command)?;
    // The deadline of this client's receive is its long poll and no more, and the reference refuses one of less than 5 s.
    let long_poll = command["await_ms"].as_u64().unwrap_or(0).max(SHORTEST_POLL_MS);
    connection.set_long_polling_timeout(Duration::from_millis(long_poll));
    let mut consumer = SimpleConsumer::new(option, connection)?;
    consumer.start().await?;
    Ok(Client::Simple(Simple { consumer, subscriptions: Mutex::new(subscriptions), turn: AtomicUsize::new(0) }))
}

/// Answers by the command's list: the n-th check of one message gets the n-th answer, later ones the last.
fn checker(command: &Value) -> Box<TransactionChecker> {
    let answers = wire::texts(&command["checker"]);
    let name = wire::text(command, "name");
    let checks: Mutex<HashMap<String, usize>> = Mutex::default();
    Box::new(move |_transaction_id, view: MessageView| {
        let mut checks = checks.lock().unwrap();
        let check = checks.entry(view.message_id().to_string()).or_default();
        let answer = &answers[(*check).min(answers.len() - 1)];
        *check += 1;
        wire::say(json!({
            "event": "check", "name": name, "at_ms": wire::now_ms(), "message": wire::message(&view), "answer": answer
        }));
        match answer.as_str() {
            "commit" => TransactionResolution::COMMIT,
            "rollback" => TransactionResolution::ROLLBACK,
            _ => TransactionResolution::UNKNOWN,
        }
    })
}
