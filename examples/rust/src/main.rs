//! Send, pop, extend, ack, and read an error, with nothing but stubs made from the contract:
//!
//!     cargo run -- [ENDPOINT [TOPIC [GROUP]]]

use std::collections::HashMap;
use std::error::Error;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prost::Message as _;
use tonic::transport::{Channel, Endpoint};

use pb::admin_client::AdminClient;
use pb::broker_client::BrokerClient;

mod pb {
    tonic::include_proto!("popmq.v1");
}

type Result<T> = std::result::Result<T, Box<dyn Error>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let mut next = |default: &str| args.next().unwrap_or_else(|| default.to_owned());
    let (endpoint, topic, group) = (next("127.0.0.1:8081"), next("greetings"), next("rust"));
    let channel = Endpoint::from_shared(format!("http://{endpoint}"))?
        .timeout(Duration::from_secs(30))
        .connect()
        .await?;
    prepare(&mut AdminClient::new(channel.clone()), &topic, &group).await?;
    // A Pop may ask for 16 MiB; the default is 4.
    let broker = BrokerClient::new(channel).max_decoding_message_size(20 << 20);
    let mut consumer = Consumer { broker, topic, group };
    consumer.send().await?;
    while consumer.handle_once().await? > 0 {}
    consumer.pop_what_is_not_there().await
}

/// Makes the topic and the group; both calls succeed when they exist with these settings.
async fn prepare(admin: &mut AdminClient<Channel>, topic: &str, group: &str) -> Result<()> {
    let topic = pb::Topic { name: topic.to_owned(), ..Default::default() };
    admin.create_topic(pb::CreateTopicRequest { topic: Some(topic), ..Default::default() }).await?;
    let group = pb::Group { name: group.to_owned(), ..Default::default() };
    admin.create_group(pb::CreateGroupRequest { group: Some(group), ..Default::default() }).await?;
    Ok(())
}

struct Consumer {
    broker: BrokerClient<Channel>,
    topic: String,
    group: String,
}

impl Consumer {
    async fn send(&mut self) -> Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as i64;
        let message = |word: &str| pb::Message {
            body: format!("rust {word}").into_bytes().into(),
            tag: "hello".to_owned(),
            keys: vec![word.to_owned()],
            properties: HashMap::from([("language".to_owned(), "rust".to_owned())]),
            born_ms: now,
            ..Default::default()
        };
        let messages = ["one", "two", "drei – ✓"].map(message).to_vec();
        let request = pb::SendRequest { topic: self.topic.clone(), messages, ..Default::default() };
        let results = self.broker.send(request).await?.into_inner().results;
        for result in &results {
            check(&result.error)?; // an entry fails alone
        }
        println!("sent {} to queue {} from offset {}", results.len(), results[0].queue, results[0].offset);
        Ok(())
    }

    /// Handles one batch: takes more time for it, does the work, and finishes it; returns the number of messages.
    async fn handle_once(&mut self) -> Result<usize> {
        let request = pb::PopRequest {
            topic: self.topic.clone(),
            group: self.group.clone(),
            max_messages: 32,
            wait_ms: 500,
            invisible_ms: 5_000,
            ..Default::default()
        };
        let batch = self.broker.pop(request).await?.into_inner();
        let handles: Vec<String> = batch.deliveries.iter().map(|delivery| delivery.handle.clone()).collect();
        if handles.is_empty() {
            return Ok(0);
        }
        let until = self.extend(&handles, 60_000).await?;
        println!("extended {} by {} ms", handles.len(), until - batch.invisible_until_ms);
        for delivery in &batch.deliveries {
            let message = delivery.message.as_ref().ok_or("a delivery without a message")?;
            let body = String::from_utf8_lossy(&message.body);
            println!("popped attempt {}: {body} {:?}", delivery.attempt, message.properties);
        }
        let count = handles.len();
        let request = pb::AckRequest { group: self.group.clone(), handles, ..Default::default() };
        let acked = self.broker.ack(request).await?.into_inner();
        for result in &acked.results {
            check(&result.error)?; // empty: all succeeded
        }
        println!("acked {count}");
        Ok(count)
    }

    /// Ends the leases of these deliveries so long from now, and returns when that is.
    async fn extend(&mut self, handles: &[String], invisible_ms: i64) -> Result<i64> {
        let change = |handle: &String| pb::InvisibleTimeChange {
            handle: handle.clone(),
            change: Some(pb::invisible_time_change::Change::Extend(pb::Extend { invisible_ms, ..Default::default() })),
            ..Default::default()
        };
        let changes = handles.iter().map(change).collect();
        let request = pb::ChangeInvisibleTimeRequest { group: self.group.clone(), changes, ..Default::default() };
        let results = self.broker.change_invisible_time(request).await?.into_inner().results;
        for result in &results {
            check(&result.error)?;
        }
        Ok(results.last().map_or(0, |result| result.visible_ms))
    }

    /// Prints why a call was refused: the details of a google.rpc.Status hold a popmq.v1.ErrorInfo.
    async fn pop_what_is_not_there(&mut self) -> Result<()> {
        let (topic, group) = ("no-such-topic".to_owned(), self.group.clone());
        let Err(refused) = self.broker.pop(pb::PopRequest { topic, group, ..Default::default() }).await else {
            return Err("a topic that is not there was popped".into());
        };
        let status = tonic_types::pb::Status::decode(refused.details())?;
        let detail = status.details.iter().find(|detail| detail.type_url.ends_with("/popmq.v1.ErrorInfo"));
        let info = pb::ErrorInfo::decode(&*detail.ok_or("an answer without popmq.v1.ErrorInfo")?.value)?;
        let (code, name) = (refused.code(), info.code().as_str_name());
        println!("refused {code:?} {name} field={} retryable={}: {}", info.field, info.retryable, info.message);
        println!("advice {}", info.action);
        Ok(())
    }
}

fn check(error: &Option<pb::ErrorInfo>) -> Result<()> {
    match error {
        Some(info) => Err(format!("{}: {}", info.code().as_str_name(), info.message).into()),
        None => Ok(()),
    }
}
