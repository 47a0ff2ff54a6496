// rust-rdkafka of any version: the commands of ages/program.py.

use std::collections::HashMap;
use std::env;
use std::io::{self, BufRead};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::executor::block_on;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::{ClientContext, DefaultClientContext};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::message::{DeliveryResult, Header, Message, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer, ProducerContext};
use rdkafka::{Offset, TopicPartitionList};

type Answer = Result<String, Box<dyn std::error::Error>>;
const WAIT: Duration = Duration::from_secs(30);
const NOTHING: &str = "{}";

/// What became of the records of one producer.
#[derive(Clone, Default)]
struct Told {
    delivered: Arc<AtomicUsize>,
    refused: Arc<Mutex<Vec<String>>>,
}

impl ClientContext for Told {}

impl ProducerContext for Told {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, _: ()) {
        match result {
            Ok(_) => drop(self.delivered.fetch_add(1, Ordering::SeqCst)),
            Err((error, _)) => self.refused.lock().unwrap().push(error.to_string()),
        }
    }
}

struct Made {
    producer: BaseProducer<Told>,
    told: Told,
}

struct Program {
    bootstrap: String,
    t0: i64,
    transactional: HashMap<String, Made>,
}

impl Program {
    fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.bootstrap).set("topic.metadata.refresh.interval.ms", "1000");
        config
    }

    fn producer(&self, settings: &[(&str, &str)]) -> Result<Made, Box<dyn std::error::Error>> {
        let (mut config, told) = (self.config(), Told::default());
        config.set("linger.ms", "20");
        for (name, value) in settings {
            config.set(*name, *value);
        }
        Ok(Made { producer: config.create_with_context(told.clone())?, told })
    }

    fn consumer(&self, group: &str, isolation: &str) -> Result<BaseConsumer, Box<dyn std::error::Error>> {
        let mut config = self.config();
        config
            .set("group.id", group)
            .set("auto.offset.reset", "earliest")
            .set("enable.auto.commit", "false")
            .set("allow.auto.create.topics", "true")
            .set("isolation.level", isolation);
        Ok(config.create()?)
    }

    fn create(&self, topic: &str) -> Answer {
        let admin: AdminClient<DefaultClientContext> = self.config().create()?;
        let wanted = [NewTopic::new(topic, 1, TopicReplication::Fixed(1))];
        for outcome in block_on(admin.create_topics(&wanted, &AdminOptions::new()))? {
            outcome.map_err(|(name, error)| format!("{name}: {error}"))?;
        }
        Ok(NOTHING.into())
    }

    fn transaction(&mut self, topic: &str, id: &str, first: usize, end: usize, how: &str) -> Answer {
        if !self.transactional.contains_key(id) {
            let made = self.producer(&[("transactional.id", id)])?;
            made.producer.init_transactions(WAIT)?;
            self.transactional.insert(id.into(), made);
        }
        let made = &self.transactional[id];
        made.producer.begin_transaction()?;
        send(made, self.t0, topic, first, end)?;
        match how {
            "commit" => made.producer.commit_transaction(WAIT)?,
            _ => made.producer.abort_transaction(WAIT)?,
        }
        Ok(NOTHING.into())
    }

    fn read(&self, topic: &str, group: &str, count: usize, isolation: &str) -> Answer {
        let member = self.consumer(group, isolation)?;
        member.subscribe(&[topic])?;
        let mut numbers: Vec<usize> = Vec::new();
        while numbers.len() < count {
            // A topic that is not there yet is told as an error.
            if let Some(Ok(message)) = member.poll(Duration::from_millis(200)) {
                let text = String::from_utf8_lossy(message.payload().unwrap_or_default());
                numbers.push(text[..5].parse()?);
            }
        }
        member.commit_consumer_state(CommitMode::Sync)?;
        Ok(format!("{{\"numbers\": {numbers:?}}}"))
    }

    fn committed(&self, topic: &str, group: &str) -> Answer {
        let mut asked = TopicPartitionList::new();
        asked.add_partition(topic, 0);
        offset_of(&self.consumer(group, "read_uncommitted")?.committed_offsets(asked, WAIT)?)
    }

    fn time(&self, topic: &str, at: i64) -> Answer {
        let mut asked = TopicPartitionList::new();
        asked.add_partition_offset(topic, 0, Offset::Offset(at))?;
        offset_of(&self.consumer("unused", "read_uncommitted")?.offsets_for_times(asked, WAIT)?)
    }

    fn answer(&mut self, words: &[&str]) -> Answer {
        let number = |at: usize| words[at].parse::<usize>();
        let topic = words[1];
        match words[0] {
            "create" => self.create(topic),
            "produce" => {
                let idempotent = if words[5] == "idempotent" { "true" } else { "false" };
                let made = self.producer(&[("compression.codec", words[2]), ("enable.idempotence", idempotent)])?;
                send(&made, self.t0, topic, number(3)?, number(4)?)
            }
            "transaction" => self.transaction(topic, words[2], number(3)?, number(4)?, words[5]),
            "read" => self.read(topic, words[2], number(3)?, words[4]),
            "committed" => self.committed(topic, words[2]),
            _ => self.time(topic, words[2].parse()?),
        }
    }
}

fn send(made: &Made, t0: i64, topic: &str, first: usize, end: usize) -> Answer {
    let before = made.told.delivered.load(Ordering::SeqCst);
    for i in first..end {
        let value = format!("{i:05} {}", "a line that repeats itself ".repeat(4));
        let (key, n) = (format!("key-{}", i % 10), i.to_string());
        let headers = OwnedHeaders::new().insert(Header { key: "n", value: Some(&n) });
        let record = BaseRecord::to(topic).partition(0).key(&key).payload(&value);
        let record = record.timestamp(t0 + i as i64).headers(headers);
        made.producer.send(record).map_err(|(error, _)| error)?;
    }
    let _ = made.producer.flush(WAIT); // older versions return nothing: the count below tells
    let refused = made.told.refused.lock().unwrap();
    let delivered = made.told.delivered.load(Ordering::SeqCst) - before;
    if delivered != end - first {
        return Err(format!("{delivered} delivered, refused: {:?}", refused.first()).into());
    }
    Ok(NOTHING.into())
}

fn offset_of(found: &TopicPartitionList) -> Answer {
    match found.elements()[0].offset() {
        Offset::Offset(offset) => Ok(format!("{{\"offset\": {offset}}}")),
        other => Err(format!("no offset, but {other:?}").into()),
    }
}

fn main() {
    let arguments: Vec<String> = env::args().collect();
    let (bootstrap, t0) = (arguments[1].clone(), arguments[2].parse().unwrap());
    let mut program = Program { bootstrap, t0, transactional: HashMap::new() };
    for line in io::stdin().lock().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        match program.answer(&words) {
            Ok(answer) => println!("{answer}"),
            Err(error) => println!("{{\"error\": {:?}}}", error.to_string()),
        }
    }
}
