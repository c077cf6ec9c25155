import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.errors.CorruptRecordException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MutableRecordBatch;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.PrimitiveRef;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;
import org.apache.kafka.storage.internals.log.RecordValidationException;

/**
 * Has Kafka's own classes do what barnabas.records does. Reads a line a task, its parts separated by spaces, and answers
 * with a line, its parts separated by tabs; "error" and the error's name if the task fails.
 *
 *   read HEX                                                the records of all batches
 *   convert HEX MAGIC FIRST_OFFSET                          the batches in an older format, and their records
 *   validate HEX BASE_OFFSET NOW LEADER_EPOCH MAGIC COMPRESSION TIMESTAMP_TYPE BEFORE_MAX AFTER_MAX COMPACTED MAX_BYTES
 *       what a leader makes of them: last offset, largest timestamp, the batches, and their records
 */
class RecordsOracle {
    static final LogValidator.MetricsRecorder NO_METRICS = new LogValidator.MetricsRecorder() {
        public void recordInvalidMagic() {}
        public void recordInvalidOffset() {}
        public void recordInvalidSequence() {}
        public void recordInvalidChecksums() {}
        public void recordNoKeyCompactedTopic() {}
    };

    public static void main(String[] arguments) throws Exception {
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(answer(line.split(" ", -1)));
        }
        out.flush();
    }

    static String answer(String[] parts) {
        try {
            MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(HexFormat.of().parseHex(parts[1])));
            switch (parts[0]) {
                case "read":
                    return "ok\t" + shown(records);
                case "convert":
                    var converted = (MemoryRecords) records
                        .downConvert(Byte.parseByte(parts[2]), Long.parseLong(parts[3]), Time.SYSTEM)
                        .records();
                    return "ok\t" + hex(converted) + "\t" + shown(converted);
                default:
                    return validated(records, parts);
            }
        } catch (RecordValidationException e) {
            return "error\t" + Errors.forException(e.invalidException()).name();
        } catch (Throwable e) {
            return "error\t" + Errors.forException(e).name() + "\t" + e;
        }
    }

    static String validated(MemoryRecords records, String[] parts) {
        long baseOffset = Long.parseLong(parts[2]);
        CompressionType source = CompressionType.NONE;
        for (MutableRecordBatch batch : records.batches()) {
            if (batch.sizeInBytes() > Integer.parseInt(parts[11])) {
                throw new RecordTooLargeException();
            }
            if (!batch.isValid()) {
                throw new CorruptRecordException();
            }
            if (batch.compressionType() != CompressionType.NONE) {
                source = batch.compressionType();
            }
        }
        long now = Long.parseLong(parts[3]);
        Time time = (Time) Proxy.newProxyInstance(
            RecordsOracle.class.getClassLoader(),
            new Class<?>[] {Time.class},
            (proxy, method, arguments) -> now
        );
        CompressionType target = parts[6].equals("producer") ? source : CompressionType.forName(parts[6]);
        var offset = PrimitiveRef.ofLong(baseOffset);
        var validator = new LogValidator(
            records,
            new TopicPartition("topic", 0),
            time,
            source,
            Compression.of(target).build(),
            Boolean.parseBoolean(parts[10]),
            Byte.parseByte(parts[5]),
            TimestampType.forName(parts[7]),
            Long.parseLong(parts[8]),
            Long.parseLong(parts[9]),
            Integer.parseInt(parts[4]),
            AppendOrigin.CLIENT,
            MetadataVersion.latestProduction()
        );
        var result = validator.validateMessagesAndAssignOffsets(offset, NO_METRICS, BufferSupplier.NO_CACHING);
        for (MutableRecordBatch batch : result.validatedRecords.batches()) {
            if (result.messageSizeMaybeChanged && batch.sizeInBytes() > Integer.parseInt(parts[11])) {
                throw new RecordTooLargeException();
            }
        }
        return String.join(
            "\t",
            "ok",
            Long.toString(offset.value - 1),
            Long.toString(result.maxTimestampMs),
            hex(result.validatedRecords),
            shown(result.validatedRecords)
        );
    }

    static String shown(MemoryRecords records) {
        var text = new StringBuilder();
        for (MutableRecordBatch batch : records.batches()) {
            batch.ensureValid();
            text.append(batch.magic()).append('/').append(batch.compressionType().name).append('/');
            text.append(batch.timestampType().name).append('/').append(batch.maxTimestamp()).append('[');
            for (Record record : batch) {
                record.ensureValid();
                text.append(record.offset()).append(',').append(record.timestamp()).append(',');
                text.append(record.sequence()).append(',').append(hex(record.hasKey() ? record.key() : null)).append(',');
                text.append(hex(record.hasValue() ? record.value() : null));
                for (Header header : record.headers()) {
                    byte[] value = header.value();
                    text.append(',').append(hex(ByteBuffer.wrap(header.key().getBytes(StandardCharsets.UTF_8))));
                    text.append('=').append(hex(value == null ? null : ByteBuffer.wrap(value)));
                }
                text.append(';');
            }
            text.append(']');
        }
        return text.toString();
    }

    static String hex(MemoryRecords records) {
        return hex(records.buffer());
    }

    static String hex(ByteBuffer buffer) {
        if (buffer == null) {
            return "null";
        }
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return HexFormat.of().formatHex(bytes);
    }
}
