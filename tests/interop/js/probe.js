// KafkaJS, one step after the other; a step that does not hold ends the program with its reason. It consumes in
// groups alone, so what it produces is read by the test.
const assert = require("node:assert");
const { CompressionTypes, ConfigResourceTypes, Kafka, logLevel } = require("kafkajs");

const COUNT = 500;
const [address, prefix] = process.argv.slice(2);
const kafka = new Kafka({ clientId: "probe", brokers: [address], logLevel: logLevel.ERROR });

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

async function main() {
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
