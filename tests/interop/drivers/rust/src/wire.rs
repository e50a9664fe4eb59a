//! Between JSON and the types of the client; and stdout, which belongs to the lines of JSON alone.

use std::collections::HashMap;
use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::prelude::{Engine, BASE64_STANDARD};
use rocketmq::conf::ClientOption;
use rocketmq::error::ClientError;
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::{Message, MessageBuilder, MessageView};
use serde_json::{json, Value};
use tokio::task::JoinError;

/// What a command was refused with: by the client, or because this client cannot do it.
pub enum Failure {
    Client(ClientError),
    Unsupported(String),
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        Failure::Client(error)
    }
}

impl Failure {
    pub fn unsupported(what: &str) -> Self {
        Failure::Unsupported(what.to_string())
    }

    pub fn json(self) -> Value {
        match self {
            Failure::Unsupported(what) => json!({"kind": "unsupported", "message": what}),
            Failure::Client(error) => {
                let name = error.context().iter().find(|(key, _)| *key == "code").map(|(_, name)| name.as_str());
                json!({
                    "code": name.and_then(code), "kind": format!("{:?}", error.kind()), "message": error.to_string()
                })
            }
        }
    }
}

/// The client shows the name of a status and hides its number.
fn code(name: &str) -> Option<i32> {
    let numbers = [
        ("BAD_REQUEST", 40000),
        ("ILLEGAL_TOPIC", 40002),
        ("ILLEGAL_CONSUMER_GROUP", 40003),
        ("ILLEGAL_MESSAGE_TAG", 40004),
        ("ILLEGAL_MESSAGE_KEY", 40005),
        ("ILLEGAL_MESSAGE_GROUP", 40006),
        ("ILLEGAL_MESSAGE_PROPERTY_KEY", 40007),
        ("INVALID_TRANSACTION_ID", 40008),
        ("ILLEGAL_MESSAGE_ID", 40009),
        ("ILLEGAL_FILTER_EXPRESSION", 40010),
        ("ILLEGAL_INVISIBLE_TIME", 40011),
        ("ILLEGAL_DELIVERY_TIME", 40012),
        ("INVALID_RECEIPT_HANDLE", 40013),
        ("MESSAGE_PROPERTY_CONFLICT_WITH_TYPE", 40014),
        ("MESSAGE_CORRUPTED", 40016),
        ("UNAUTHORIZED", 40100),
        ("FORBIDDEN", 40300),
        ("TOPIC_NOT_FOUND", 40402),
        ("CONSUMER_GROUP_NOT_FOUND", 40403),
        ("MESSAGE_BODY_TOO_LARGE", 41301),
        ("TOO_MANY_REQUESTS", 42900),
        ("MESSAGE_PROPERTIES_TOO_LARGE", 43101),
        ("INTERNAL_SERVER_ERROR", 50001),
    ];
    numbers.iter().find(|(known, _)| *known == name).map(|(_, number)| *number)
}

pub fn panic_text(error: JoinError) -> String {
    match error.try_into_panic() {
        Ok(panic) => match panic.downcast::<String>() {
            Ok(text) => *text,
            Err(panic) => panic.downcast_ref::<&str>().unwrap_or(&"a panic without a text").to_string(),
        },
        Err(cancelled) => cancelled.to_string(),
    }
}

pub fn say(line: Value) {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{line}").and_then(|()| stdout.flush()).expect("who drives has gone");
}

pub fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970").as_millis() as i64
}

pub fn text(object: &Value, field: &str) -> String {
    object[field].as_str().unwrap_or_default().to_string()
}

/// A list of texts; one text is a list of one.
pub fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::Array(items) => items.iter().filter_map(Value::as_str).map(str::to_string).collect(),
        Value::String(text) => vec![text.clone()],
        _ => vec![],
    }
}

pub fn connection(command: &Value) -> Result<ClientOption, Failure> {
    if !command["namespace"].is_null() {
        return Err(Failure::unsupported("namespace"));
    }
    let mut option = ClientOption::default();
    option.set_access_url(text(command, "endpoint"));
    option.set_enable_tls(command["tls"] == true);
    if let (Some(key), Some(secret)) = (command["access_key"].as_str(), command["secret_key"].as_str()) {
        option.set_access_key(key);
        option.set_secret_key(secret);
    }
    Ok(option)
}

pub fn filter(filter: &Value) -> FilterExpression {
    match (filter["sql"].as_str(), filter["tag"].as_str()) {
        (Some(sql), _) => FilterExpression::new(FilterType::Sql, sql),
        (None, tag) => FilterExpression::new(FilterType::Tag, tag.unwrap_or("*")),
    }
}

pub fn message_to_send(message: &Value, transaction: bool) -> Result<impl Message, Failure> {
    if !message["priority"].is_null() || !message["lite_topic"].is_null() {
        return Err(Failure::unsupported("priority and lite_topic"));
    }
    let body = BASE64_STANDARD.decode(text(message, "body")).expect("a body in base64");
    let mut builder = MessageBuilder::builder().set_topic(text(message, "topic")).set_body(body);
    if let Some(tag) = message["tag"].as_str() {
        builder = builder.set_tag(tag);
    }
    if let Some(keys) = message["keys"].as_array() {
        builder = builder.set_keys(keys.iter().filter_map(Value::as_str).collect());
    }
    if let Some(properties) = message["properties"].as_object() {
        let texts = properties.iter().map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()));
        builder = builder.set_properties(texts.collect::<HashMap<_, _>>());
    }
    if let Some(group) = message["group"].as_str() {
        builder = builder.set_message_group(group);
    }
    if let Some(delay) = message["delay_ms"].as_i64() {
        // The client knows seconds only: the next one that is not earlier than asked for.
        builder = builder.set_delivery_timestamp((now_ms() + delay + 999).div_euclid(1000));
    }
    if transaction {
        builder = builder.enable_transaction();
    }
    Ok(builder.build()?)
}

pub fn message(view: &MessageView) -> Value {
    let mut keys = view.keys().to_vec();
    keys.sort();
    json!({
        "topic": view.topic(),
        "body": BASE64_STANDARD.encode(view.body()),
        "tag": view.tag(),
        "keys": keys,
        "properties": view.properties(),
        "message_id": view.message_id(),
        "group": view.message_group(),
        "deliver_at_ms": view.delivery_timestamp().map(|seconds| seconds * 1000),
        "born_at_ms": view.born_timestamp() * 1000,
        "born_host": view.born_host(),
        "attempt": view.delivery_attempt(),
    })
}
