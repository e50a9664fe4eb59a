import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonPrimitive;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/**
 * What a listener or a checker does by its command: fail so often, take so long, answer this.
 * It tells each call as an event.
 */
final class Script {
    private final String name;
    private final JsonObject fail;
    private final JsonElement takes;
    private final JsonArray answers;
    private final Map<String, Integer> calls = new ConcurrentHashMap<>();

    Script(JsonObject command) {
        name = Wire.text(command, "name");
        fail = Wire.has(command, "fail") ? command.getAsJsonObject("fail") : new JsonObject();
        takes = Wire.has(command, "take_ms") ? command.get("take_ms") : new JsonPrimitive(0);
        answers = answers(command.get("checker"));
    }

    private static JsonArray answers(JsonElement checker) {
        if (checker != null && checker.isJsonArray()) {
            return checker.getAsJsonArray();
        }
        JsonArray one = new JsonArray();
        one.add(checker);
        return one;
    }

    ConsumeResult consume(MessageView view) {
        String body = StandardCharsets.UTF_8.decode(view.getBody()).toString();
        JsonObject message = Wire.message(view);
        tell("listening", message, null);
        sleep(milliseconds(body));
        int failures = fail.has(body) ? fail.get(body).getAsInt() : 0;
        boolean ok = failures >= 0 && calls.merge(body, 1, Integer::sum) > failures;
        tell("listened", message, ok);
        return ok ? ConsumeResult.SUCCESS : ConsumeResult.FAILURE;
    }

    TransactionResolution check(MessageView view) {
        int checks = calls.merge(view.getMessageId().toString(), 1, Integer::sum);
        String answer = answers.get(Math.min(checks, answers.size()) - 1).getAsString();
        JsonObject event = event("check", Wire.message(view));
        event.addProperty("answer", answer);
        Wire.say(event);
        return TransactionResolution.valueOf(answer.toUpperCase());
    }

    private long milliseconds(String body) {
        if (takes.isJsonPrimitive()) {
            return takes.getAsLong();
        }
        JsonElement mine = takes.getAsJsonObject().get(body);
        return mine == null ? 0 : mine.getAsLong();
    }

    private static void sleep(long milliseconds) {
        try {
            Thread.sleep(milliseconds);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    private void tell(String kind, JsonObject message, Boolean ok) {
        JsonObject event = event(kind, message);
        if (ok != null) {
            event.addProperty("ok", ok);
        }
        Wire.say(event);
    }

    private JsonObject event(String kind, JsonObject message) {
        JsonObject event = new JsonObject();
        event.addProperty("event", kind);
        event.addProperty("name", name);
        event.addProperty("at_ms", System.currentTimeMillis());
        event.add("message", message);
        return event;
    }
}
