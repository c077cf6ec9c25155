import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.utils.Exit;
import org.apache.kafka.server.util.ShutdownableThread;

/**
 * Runs Kafka's command line tools, one after the other, in one JVM.
 *
 * A line of standard input is a call, as JSON: {"main": class, "args": [...]}. A tool that does not end by itself also
 * has "until" (a text) and "times": it is ended when it has printed as many lines with the text. The answer is a line:
 * {"code": exit code, "out": text, "err": text}.
 */
public class ToolServer {
    private static final long UNTIL_TIMEOUT_MS = 60_000;
    private static final long JOIN_TIMEOUT_MS = 10_000;

    /** What a tool prints. Scala keeps the stream that it finds first, so that the stream stays and its target changes. */
    private static final class Captured extends OutputStream {
        private ByteArrayOutputStream target = new ByteArrayOutputStream();
        private boolean open;

        synchronized void open() {
            target = new ByteArrayOutputStream();
            open = true;
        }

        synchronized void end() {
            open = false;
        }

        synchronized String text() {
            return target.toString(StandardCharsets.UTF_8);
        }

        @Override
        public synchronized void write(int one) {
            if (open) target.write(one);
        }

        @Override
        public synchronized void write(byte[] bytes, int offset, int length) {
            if (open) target.write(bytes, offset, length);
        }
    }

    private static final class Ended extends Error {
        Ended() {
            super("the tool has ended", null, false, false);
        }
    }

    private static final Captured OUT = new Captured();
    private static final Captured ERR = new Captured();
    private static Integer exitCode;

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        System.setOut(new PrintStream(OUT, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(ERR, true, StandardCharsets.UTF_8));
        Exit.Procedure end = (code, message) -> {
            // The first code counts: a tool may catch what ends it, and then says that it has failed.
            if (exitCode == null) exitCode = code;
            OUT.end();
            ERR.end();
            throw new Ended();
        };
        Exit.setExitProcedure(end);
        Exit.setHaltProcedure(end);
        Exit.setShutdownHookAdder((name, hook) -> { });
        ObjectMapper mapper = new ObjectMapper();
        BufferedReader calls = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line;
        while ((line = calls.readLine()) != null) {
            ObjectNode answer = mapper.createObjectNode();
            answer.put("code", call(mapper.readTree(line)));
            answer.put("out", OUT.text());
            answer.put("err", ERR.text());
            answers.println(mapper.writeValueAsString(answer));
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static int call(JsonNode asked) throws Exception {
        List<String> words = new ArrayList<>();
        asked.get("args").forEach(word -> words.add(word.asText()));
        exitCode = null;
        OUT.open();
        ERR.open();
        int code = 0;
        try {
            Class<?> tool = Class.forName(asked.get("main").asText());
            tool.getMethod("main", String[].class).invoke(null, (Object) words.toArray(new String[0]));
            if (asked.has("until")) awaitLines(asked.get("until").asText(), asked.get("times").asInt());
        } catch (InvocationTargetException failed) {
            if (!(failed.getCause() instanceof Ended)) {
                failed.getCause().printStackTrace();
                code = 1;
            }
        }
        OUT.end();
        ERR.end();
        if (asked.has("until")) endThreads();
        return exitCode == null ? code : exitCode;
    }

    private static void awaitLines(String text, int times) throws InterruptedException {
        long end = System.currentTimeMillis() + UNTIL_TIMEOUT_MS;
        while (OUT.text().lines().filter(line -> line.contains(text)).count() < times) {
            if (System.currentTimeMillis() > end) return;
            Thread.sleep(20);
        }
    }

    /** Ends the threads of a tool that would run until somebody ends it. */
    private static void endThreads() throws InterruptedException {
        List<ShutdownableThread> threads = new ArrayList<>();
        for (Thread each : Thread.getAllStackTraces().keySet())
            if (each instanceof ShutdownableThread) threads.add((ShutdownableThread) each);
        for (ShutdownableThread each : threads) each.initiateShutdown();
        for (ShutdownableThread each : threads) each.join(JOIN_TIMEOUT_MS);
    }
}
