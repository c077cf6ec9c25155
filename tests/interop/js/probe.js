// KafkaJS, one step after the other; a step that does not hold ends the program with its reason. It consumes in
// groups alone, so what it produces is read by the test.
const assert = require("node:assert");
const { readFileSync } = require("node:fs");
const { CompressionTypes, ConfigResourceTypes, Kafka, logLevel } = require("kafkajs");

const COUNT = 500;
const [address, prefix, mechanism, username, password, authority] = process.argv.slice(2);
// For the mechanism SSL, the user is the file of a key and its certificate. The password of OAUTHBEARER is a token.
const isMutual = mechanism === "SSL";
const kafka = client(password);

function client(password) {
  const settings = { clientId: "probe", brokers: [address], logLevel: logLevel.ERROR };
  // Of KafkaJS, mechanisms are in lower case.
  const value = password;
  if (mechanism === "OAUTHBEARER") {
    settings.sasl = { mechanism: "oauthbearer", oauthBearerProvider: async () => ({ value }) };
  } else if (mechanism && !isMutual) {
    settings.sasl = { mechanism: mechanism.toLowerCase(), username, password };
  }
  if (authority) settings.ssl = { ca: [readFileSync(authority, "utf-8")] };
  if (isMutual && password === "right") {
    settings.ssl.key = settings.ssl.cert = readFileSync(username, "utf-8");
  }
  return new Kafka(settings);
}

async function produce(topic, compression, acks, idempotent) {
  const producer = kafka.producer({ idempotent, allowAutoTopicCreation: true });
  await producer.connect();
  const messages = [];
  for (let number = 0; number < COUNT; number++) {
    messages.push({
      key: `key-${number}`,
      value: number % 5 === 0 ? null : `value-${number}`,
      partition: 0,
      headers: { name: `header-${number}` },
      timestamp: String(1600000000000 + number),
    });
  }
  for (let first = 0; first < COUNT; first += 50) {
    const batch = messages.slice(first, first + 50);
    const [answer] = await producer.send({ topic, acks, compression, messages: batch });
    if (acks !== 0) assert.strictEqual(Number(answer.baseOffset), first);
  }
  await producer.disconnect();
}

async function administrate(admin, topic) {
  const configEntries = [{ name: "retention.ms", value: "1234567" }];
  assert.ok(await admin.createTopics({ topics: [{ topic, numPartitions: 2, configEntries }] }));
  assert.strictEqual(await admin.createTopics({ topics: [{ topic }] }), false);
  assert.ok((await admin.listTopics()).includes(topic));
  await admin.createPartitions({ topicPartitions: [{ topic, count: 4 }] });
  const metadata = await admin.fetchTopicMetadata({ topics: [topic] });
  assert.strictEqual(metadata.topics[0].partitions.length, 4);
  const resource = { type: ConfigResourceTypes.TOPIC, name: topic };
  await admin.alterConfigs({
    validateOnly: false,
    resources: [{ ...resource, configEntries: [{ name: "max.message.bytes", value: "5000" }] }],
  });
  const described = await admin.describeConfigs({ includeSynonyms: true, resources: [resource] });
  const settings = Object.fromEntries(described.resources[0].configEntries.map((e) => [e.configName, e.configValue]));
  assert.strictEqual(settings["max.message.bytes"], "5000");
  assert.strictEqual(settings["retention.ms"], "604800000");
  const cluster = await admin.describeCluster();
  assert.strictEqual(cluster.brokers.length, 1);
  assert.strictEqual(cluster.controller, cluster.brokers[0].nodeId);
  await admin.deleteTopics({ topics: [topic] });
  assert.ok(!(await admin.listTopics()).includes(topic));
}

async function offsets(admin, topic) {
  let [found] = await admin.fetchTopicOffsets(topic);
  assert.deepStrictEqual([found.low, found.high], ["0", String(COUNT)]);
  [found] = await admin.fetchTopicOffsetsByTimestamp(topic, 1600000000123);
  assert.strictEqual(found.offset, "123");
  await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: "100" }] });
  [found] = await admin.fetchTopicOffsets(topic);
  assert.strictEqual(found.low, "100");
}

async function secured(topic) {
  await produce(topic, CompressionTypes.GZIP, -1, true);
  const consumer = kafka.consumer({ groupId: `${topic}-group` });
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  let count = 0;
  await new Promise((resolve, reject) => {
    const eachMessage = async ({ message }) => {
      if (String(message.key) !== `key-${count}`) reject(new Error(`key ${message.key} for ${count}`));
      if (++count === COUNT) resolve();
    };
    consumer.run({ eachMessage }).catch(reject);
  });
  await consumer.disconnect();
  const refused = client(`not ${password}`).admin({ retry: { retries: 0 } });
  const reason = isMutual ? undefined : { name: "KafkaJSSASLAuthenticationError" };
  await assert.rejects(isMutual ? refused.connect().then(() => refused.listTopics()) : refused.connect(), reason);
}

async function main() {
  if (mechanism) {
    await secured(prefix);
    console.log("all steps hold");
    return;
  }
  const admin = kafka.admin();
  await admin.connect();
  await administrate(admin, prefix);
  for (const [name, compression] of [["none", CompressionTypes.None], ["gzip", CompressionTypes.GZIP]]) {
    for (const acks of [0, 1, -1]) await produce(`${prefix}-${name}-${acks}`, compression, acks, false);
    await produce(`${prefix}-${name}-idempotent`, compression, -1, true);
  }
  await offsets(admin, `${prefix}-gzip--1`);
  await admin.disconnect();
  console.log("all steps hold");
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
