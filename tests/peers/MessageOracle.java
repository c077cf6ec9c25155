import com.fasterxml.jackson.databind.JsonNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.io.PrintWriter;
import java.lang.reflect.InvocationTargetException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/**
 * Reads lines "NAME VERSION HEX" and has Kafka's own class decode each message. Answers a line for a line, its parts
 * separated by tabs: the JSON form, the message encoded again, the JSON form read and encoded, and how many bytes were
 * left over; or "unknown" if this release has no such message or version, or "error" and the exception.
 */
class MessageOracle {
    static final String[] NAMES = {
        "org.apache.kafka.common.message.%sData",
        "org.apache.kafka.common.message.%s",
        "org.apache.kafka.common.metadata.%s",
        "org.apache.kafka.coordinator.group.generated.%s",
        "org.apache.kafka.coordinator.transaction.generated.%s",
        "org.apache.kafka.coordinator.share.generated.%s",
        "org.apache.kafka.server.log.remote.metadata.storage.generated.%s",
        "org.apache.kafka.storage.internals.log.generated.%s",
        "org.apache.kafka.server.log.internals.generated.%s",
        "org.apache.kafka.raft.generated.%s",
        "org.apache.kafka.raft.generated.%sData",
    };

    public static void main(String[] arguments) throws Exception {
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var out = new PrintWriter(new OutputStreamWriter(System.out, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] parts = line.split(" ", -1);
            out.println(answer(parts[0], Short.parseShort(parts[1]), HexFormat.of().parseHex(parts[2])));
        }
        out.flush();
    }

    static String answer(String name, short version, byte[] data) throws Exception {
        Class<?> type = find(name);
        if (type == null) return "unknown";
        Message message = (Message) type.getDeclaredConstructor().newInstance();
        if (version < message.lowestSupportedVersion() || version > message.highestSupportedVersion()) return "unknown";
        try {
            ByteBuffer buffer = ByteBuffer.wrap(data);
            message.read(new ByteBufferAccessor(buffer), version);
            Class<?> converter = Class.forName(type.getName() + "JsonConverter");
            JsonNode json = (JsonNode) converter.getMethod("write", type, short.class).invoke(null, message, version);
            Message back = (Message) converter.getMethod("read", JsonNode.class, short.class).invoke(null, json, version);
            return String.join("\t", ascii(json.toString()), hex(message, version), hex(back, version), "" + buffer.remaining());
        } catch (InvocationTargetException error) {
            return "error\t" + error.getCause();
        } catch (RuntimeException error) {
            return "error\t" + error;
        }
    }

    static String ascii(String text) {
        var escaped = new StringBuilder();
        text.chars().forEach(c -> escaped.append(c < 128 ? Character.toString(c) : String.format("\\u%04x", c)));
        return escaped.toString();
    }

    static Class<?> find(String name) {
        for (String pattern : NAMES) {
            try {
                return Class.forName(String.format(pattern, name));
            } catch (ClassNotFoundException | NoClassDefFoundError missing) {
                continue;
            }
        }
        return null;
    }

    static String hex(Message message, short version) {
        var cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(buffer), cache, version);
        return HexFormat.of().formatHex(buffer.array());
    }
}
