import com.google.gson.Gson;
import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientConfigurationBuilder;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.StaticSessionCredentialsProvider;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.SendReceipt;

/** Between JSON and the types of the client; and stdout, which belongs to the lines of JSON alone. */
final class Wire {
    private static final Gson GSON = new Gson();
    // The client has no accessor for the code of its exceptions: it stands in their text.
    private static final Pattern CODE = Pattern.compile("response-code=(\\d+)");
    private static PrintStream lines;

    private Wire() { }

    /** Whatever prints to System.out, the client's log among it, goes to stderr from here on. */
    static void takeStdout() {
        lines = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err);
    }

    static void say(JsonObject line) {
        String text = GSON.toJson(line);
        synchronized (lines) {
            lines.println(text);
        }
    }

    static boolean has(JsonObject object, String field) {
        return object.has(field) && !object.get(field).isJsonNull();
    }

    static String text(JsonObject object, String field) {
        return object.get(field).getAsString();
    }

    static List<String> texts(JsonObject object, String field) {
        List<String> texts = new ArrayList<>();
        if (has(object, field)) {
            object.getAsJsonArray(field).forEach(element -> texts.add(element.getAsString()));
        }
        return texts;
    }

    static JsonArray texts(Collection<String> texts) {
        JsonArray array = new JsonArray();
        texts.stream().sorted().forEach(array::add);
        return array;
    }

    static ClientConfiguration connection(JsonObject command) {
        ClientConfigurationBuilder builder = ClientConfiguration.newBuilder().setEndpoints(text(command, "endpoint"));
        JsonElement tls = command.get("tls");
        if (!(has(command, "tls") && tls.getAsString().equals("default"))) {
            builder.enableSsl(has(command, "tls") && tls.getAsBoolean());
        }
        if (has(command, "namespace")) {
            builder.setNamespace(text(command, "namespace"));
        }
        if (has(command, "access_key")) {
            builder.setCredentialProvider(
                new StaticSessionCredentialsProvider(text(command, "access_key"), text(command, "secret_key")));
        }
        return builder.build();
    }

    static Map<String, FilterExpression> subscriptions(JsonObject command) {
        Map<String, FilterExpression> subscriptions = new HashMap<>();
        JsonObject topics = command.getAsJsonObject("subscriptions");
        topics.keySet().forEach(topic -> subscriptions.put(topic, filter(topics.getAsJsonObject(topic))));
        return subscriptions;
    }

    static FilterExpression filter(JsonObject filter) {
        if (has(filter, "sql")) {
            return new FilterExpression(text(filter, "sql"), FilterExpressionType.SQL92);
        }
        return has(filter, "tag") ? new FilterExpression(text(filter, "tag")) : FilterExpression.SUB_ALL;
    }

    static Message message(MessageBuilder builder, JsonObject message) {
        builder.setTopic(text(message, "topic")).setBody(Base64.getDecoder().decode(text(message, "body")));
        if (has(message, "tag")) {
            builder.setTag(text(message, "tag"));
        }
        if (has(message, "keys")) {
            builder.setKeys(texts(message, "keys").toArray(String[]::new));
        }
        if (has(message, "properties")) {
            JsonObject properties = message.getAsJsonObject("properties");
            properties.keySet().forEach(key -> builder.addProperty(key, text(properties, key)));
        }
        if (has(message, "group")) {
            builder.setMessageGroup(text(message, "group"));
        }
        if (has(message, "delay_ms")) {
            builder.setDeliveryTimestamp(System.currentTimeMillis() + message.get("delay_ms").getAsLong());
        }
        if (has(message, "priority")) {
            builder.setPriority(message.get("priority").getAsInt());
        }
        if (has(message, "lite_topic")) {
            builder.setLiteTopic(text(message, "lite_topic"));
        }
        return builder.build();
    }

    static JsonObject message(MessageView view) {
        ByteBuffer buffer = view.getBody();
        byte[] body = new byte[buffer.remaining()];
        buffer.get(body);
        JsonObject message = new JsonObject();
        message.addProperty("topic", view.getTopic());
        message.addProperty("body", Base64.getEncoder().encodeToString(body));
        message.addProperty("tag", view.getTag().orElse(null));
        message.add("keys", texts(view.getKeys()));
        message.add("properties", GSON.toJsonTree(view.getProperties()));
        message.addProperty("message_id", view.getMessageId().toString());
        message.addProperty("group", view.getMessageGroup().orElse(null));
        message.addProperty("deliver_at_ms", view.getDeliveryTimestamp().orElse(null));
        message.addProperty("priority", view.getPriority().orElse(null));
        message.addProperty("lite_topic", view.getLiteTopic().orElse(null));
        message.addProperty("born_at_ms", view.getBornTimestamp());
        message.addProperty("born_host", view.getBornHost());
        message.addProperty("attempt", view.getDeliveryAttempt());
        return message;
    }

    /** Offset and transaction id stay inside of the client: its SendReceipt does not show them. */
    static JsonObject receipt(SendReceipt receipt) {
        JsonObject answer = new JsonObject();
        answer.addProperty("message_id", receipt.getMessageId().toString());
        answer.addProperty("recall_handle", receipt.getRecallHandle());
        return answer;
    }

    /** A client that fails to start wraps the reason into what its threads say of it. */
    static JsonObject error(Throwable thrown) {
        Throwable error = thrown;
        for (Throwable cause = thrown; cause != null; cause = cause.getCause()) {
            error = cause instanceof ClientException ? cause : error;
        }
        Matcher code = CODE.matcher(String.valueOf(error.getMessage()));
        JsonObject answer = new JsonObject();
        answer.addProperty("code", code.find() ? Integer.valueOf(code.group(1)) : null);
        answer.addProperty("kind", error.getClass().getSimpleName());
        answer.addProperty("message", String.valueOf(error.getMessage()));
        return answer;
    }
}
