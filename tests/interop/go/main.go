// Franz-go's client, one step after the other; a step that does not hold ends the program with its reason.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	count = 500
	wait  = 2 * time.Minute
)

func check(holds bool, format string, args ...any) {
	if !holds {
		log.Fatalf(format, args...)
	}
}

func must[T any](value T, err error) T {
	check(err == nil, "%v", err)
	return value
}

// The options of every client.
var common []kgo.Opt

func client(address string, options ...kgo.Opt) *kgo.Client {
	options = append(options, common...)
	return must(kgo.NewClient(append(options, kgo.SeedBrokers(address))...))
}

func key(number int) []byte { return []byte(fmt.Sprintf("key-%d", number)) }

func produce(ctx context.Context, address, topic string, options ...kgo.Opt) {
	producer := client(address, append(options, kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	defer producer.Close()
	for number := 0; number < count; number++ {
		record := &kgo.Record{
			Topic:     topic,
			Key:       key(number),
			Timestamp: time.UnixMilli(1600000000000 + int64(number)),
			Headers:   []kgo.RecordHeader{{Key: "name", Value: key(number)}},
		}
		if number%5 != 0 {
			record.Value = append([]byte("value value value value "), key(number)...)
		}
		producer.Produce(ctx, record, func(_ *kgo.Record, err error) { check(err == nil, "%s: %v", topic, err) })
	}
	check(producer.Flush(ctx) == nil, "flush")
}

func consume(ctx context.Context, address, topic string, from int64, isolation kgo.IsolationLevel) {
	consumer := client(address, kgo.FetchIsolationLevel(isolation), kgo.ConsumePartitions(
		map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(from)}}))
	defer consumer.Close()
	number := int(from)
	for number < count {
		fetches := consumer.PollFetches(ctx)
		check(len(fetches.Errors()) == 0, "%s: %v", topic, fetches.Errors())
		fetches.EachRecord(func(record *kgo.Record) {
			check(record.Offset == int64(number), "%s: offset %d for %d", topic, record.Offset, number)
			check(string(record.Key) == string(key(number)), "%s: key %q", topic, record.Key)
			check((record.Value == nil) == (number%5 == 0), "%s: value %q", topic, record.Value)
			check(string(record.Headers[0].Value) == string(key(number)), "%s: header", topic)
			check(record.Timestamp.UnixMilli() == 1600000000000+int64(number), "%s: timestamp", topic)
			number++
		})
	}
}

func administrate(ctx context.Context, address, topic string) {
	admin := kadm.NewClient(client(address))
	defer admin.Close()
	created := must(admin.CreateTopic(ctx, 2, 1, map[string]*string{"retention.ms": kadm.StringPtr("1234567")}, topic))
	check(created.NumPartitions == 2, "partitions: %d", created.NumPartitions)
	_, err := admin.CreateTopic(ctx, 2, 1, nil, topic)
	check(errors.Is(err, kerr.TopicAlreadyExists), "created again: %v", err)
	check(must(admin.UpdatePartitions(ctx, 4, topic)).Error() == nil, "more partitions")
	details := must(admin.ListTopics(ctx, topic))
	check(len(details[topic].Partitions) == 4, "four partitions")
	changes := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: kadm.StringPtr("5000")}}
	for _, answer := range must(admin.AlterTopicConfigs(ctx, changes, topic)) {
		check(answer.Err == nil, "alter: %v", answer.Err)
	}
	found := must(must(admin.DescribeTopicConfigs(ctx, topic)).On(topic, nil))
	settings := map[string]string{}
	for _, config := range found.Configs {
		settings[config.Key] = config.MaybeValue()
	}
	check(settings["max.message.bytes"] == "5000", "setting %q", settings["max.message.bytes"])
	check(settings["retention.ms"] == "1234567", "setting %q", settings["retention.ms"])
	for _, directories := range must(admin.DescribeAllLogDirs(ctx, nil)) {
		check(directories.Error() == nil, "directories: %v", directories.Error())
	}
	metadata := must(admin.BrokerMetadata(ctx))
	check(len(metadata.Brokers) == 1, "brokers")
	for _, answer := range must(admin.DeleteTopics(ctx, topic)) {
		check(answer.Err == nil, "delete: %v", answer.Err)
	}
}

func offsets(ctx context.Context, address, topic string) {
	admin := kadm.NewClient(client(address))
	defer admin.Close()
	at := func(listed kadm.ListedOffsets) int64 {
		offset, _ := listed.Lookup(topic, 0)
		check(offset.Err == nil, "list: %v", offset.Err)
		return offset.Offset
	}
	check(at(must(admin.ListStartOffsets(ctx, topic))) == 0, "start")
	check(at(must(admin.ListEndOffsets(ctx, topic))) == count, "end")
	check(at(must(admin.ListCommittedOffsets(ctx, topic))) == count, "committed end")
	check(at(must(admin.ListOffsetsAfterMilli(ctx, 1600000000123, topic))) == 123, "by time")
	before := kadm.Offsets{}
	before.AddOffset(topic, 0, 100, -1)
	deleted, _ := must(admin.DeleteRecords(ctx, before)).Lookup(topic, 0)
	check(deleted.Err == nil && deleted.LowWatermark == 100, "deleted: %+v", deleted)
	check(at(must(admin.ListStartOffsets(ctx, topic))) == 100, "new start")
}

func main() {
	address, prefix := os.Args[1], os.Args[2]
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	if len(os.Args) > 3 {
		secured(ctx, address, prefix, os.Args[3:])
		fmt.Println("all steps hold")
		return
	}
	administrate(ctx, address, prefix)
	compressions := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	acks := map[string][]kgo.Opt{
		"0":   {kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite()},
		"1":   {kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite()},
		"all": {},
	}
	for compression, codec := range compressions {
		for name, options := range acks {
			topic := prefix + "-" + compression + "-" + name
			options = append(options, kgo.ProducerBatchCompression(codec), kgo.AllowAutoTopicCreation())
			produce(ctx, address, topic, options...)
			consume(ctx, address, topic, 0, kgo.ReadUncommitted())
			consume(ctx, address, topic, count-7, kgo.ReadCommitted())
		}
	}
	offsets(ctx, address, prefix+"-zstd-all")
	fmt.Println("all steps hold")
}
