import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.Closeable;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.LitePushConsumer;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.java.misc.MetadataUtils;

/**
 * The driver of the Java client. Lines of JSON (tests/interop/README.md) become calls of its API.
 *
 * <pre>
 * stdin ─▶ main ─▶ a thread for each command ─▶ the client named in it
 *                                             ◀─ answer, through Wire.say
 * the client's threads ─▶ Script (listener, checker) ─▶ events, through Wire.say
 * </pre>
 */
public final class Driver {
    private static final String CAN =
        "simple change push transaction recall priority tls access_key namespace lite_push";

    private final ClientServiceProvider provider = ClientServiceProvider.loadService();
    private final Map<String, Closeable> clients = new ConcurrentHashMap<>();
    private final Map<String, MessageView> held = new ConcurrentHashMap<>();
    private final AtomicLong received = new AtomicLong();

    public static void main(String[] arguments) throws Exception {
        Wire.takeStdout();
        JsonObject hello = new JsonObject();
        hello.addProperty("event", "hello");
        hello.addProperty("client", "java");
        hello.addProperty("version", MetadataUtils.getVersion());
        hello.add("can", Wire.texts(List.of(CAN.split(" "))));
        Wire.say(hello);
        Driver driver = new Driver();
        ExecutorService threads = Executors.newCachedThreadPool();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonObject command = JsonParser.parseString(line).getAsJsonObject();
            threads.execute(() -> driver.answer(command));
        }
        System.exit(0);
    }

    private void answer(JsonObject command) {
        JsonObject answer = new JsonObject();
        answer.add("id", command.get("id"));
        try {
            answer.add("ok", execute(command));
        } catch (Throwable error) {
            answer.add("error", Wire.error(error));
        }
        Wire.say(answer);
        if (Wire.text(command, "do").equals("quit")) {
            System.exit(0);
        }
    }

    private JsonObject execute(JsonObject command) throws Exception {
        switch (Wire.text(command, "do")) {
            case "producer" -> start(command, producer(command));
            case "simple" -> start(command, simple(command));
            case "push" -> start(command, push(command));
            case "lite_push" -> start(command, litePush(command));
            case "subscribe" -> subscribe(command);
            case "unsubscribe" -> unsubscribe(command);
            case "lite_subscribe" -> lite(command).subscribeLite(Wire.text(command, "lite_topic"));
            case "lite_unsubscribe" -> lite(command).unsubscribeLite(Wire.text(command, "lite_topic"));
            case "ack" -> client(command, SimpleConsumer.class).ack(held.get(Wire.text(command, "held")));
            case "change" -> change(command);
            case "stop" -> clients.remove(Wire.text(command, "name")).close();
            case "send" -> {
                return send(command);
            }
            case "recall" -> {
                return recall(command);
            }
            case "receive" -> {
                return receive(command);
            }
            case "quit" -> { }
            default -> throw new UnsupportedOperationException(Wire.text(command, "do"));
        }
        return new JsonObject();
    }

    private void start(JsonObject command, Closeable client) {
        clients.put(Wire.text(command, "name"), client);
    }

    private <T> T client(JsonObject command, Class<T> kind) {
        return kind.cast(clients.get(Wire.text(command, "name")));
    }

    private LitePushConsumer lite(JsonObject command) {
        return client(command, LitePushConsumer.class);
    }

    private Producer producer(JsonObject command) throws Exception {
        var builder = provider.newProducerBuilder().setClientConfiguration(Wire.connection(command));
        builder.setTopics(Wire.texts(command, "topics").toArray(String[]::new));
        if (Wire.has(command, "checker")) {
            builder.setTransactionChecker(new Script(command)::check);
        }
        return builder.build();
    }

    private SimpleConsumer simple(JsonObject command) throws Exception {
        return provider.newSimpleConsumerBuilder()
            .setClientConfiguration(Wire.connection(command))
            .setConsumerGroup(Wire.text(command, "group"))
            .setSubscriptionExpressions(Wire.subscriptions(command))
            .setAwaitDuration(Duration.ofMillis(command.get("await_ms").getAsLong()))
            .build();
    }

    private PushConsumer push(JsonObject command) throws Exception {
        var builder = provider.newPushConsumerBuilder()
            .setClientConfiguration(Wire.connection(command))
            .setConsumerGroup(Wire.text(command, "group"))
            .setSubscriptionExpressions(Wire.subscriptions(command))
            .setMessageListener(new Script(command)::consume);
        if (Wire.has(command, "threads")) {
            builder.setConsumptionThreadCount(command.get("threads").getAsInt());
        }
        return builder.build();
    }

    private LitePushConsumer litePush(JsonObject command) throws Exception {
        LitePushConsumer consumer = provider.newLitePushConsumerBuilder()
            .setClientConfiguration(Wire.connection(command))
            .setConsumerGroup(Wire.text(command, "group"))
            .bindTopic(Wire.text(command, "topic"))
            .setMessageListener(new Script(command)::consume)
            .build();
        for (String liteTopic : Wire.texts(command, "lite_topics")) {
            consumer.subscribeLite(liteTopic);
        }
        return consumer;
    }

    private void subscribe(JsonObject command) throws Exception {
        String topic = Wire.text(command, "topic");
        var filter = Wire.filter(command.getAsJsonObject("filter"));
        if (client(command, Closeable.class) instanceof PushConsumer push) {
            push.subscribe(topic, filter);
        } else {
            client(command, SimpleConsumer.class).subscribe(topic, filter);
        }
    }

    private void unsubscribe(JsonObject command) throws Exception {
        String topic = Wire.text(command, "topic");
        if (client(command, Closeable.class) instanceof PushConsumer push) {
            push.unsubscribe(topic);
        } else {
            client(command, SimpleConsumer.class).unsubscribe(topic);
        }
    }

    private JsonObject send(JsonObject command) throws Exception {
        Producer producer = client(command, Producer.class);
        var message = Wire.message(provider.newMessageBuilder(), command.getAsJsonObject("message"));
        if (!Wire.has(command, "transaction")) {
            return Wire.receipt(producer.send(message));
        }
        Transaction transaction = producer.beginTransaction();
        JsonObject receipt = Wire.receipt(producer.send(message, transaction));
        switch (Wire.text(command, "transaction")) {
            case "commit" -> transaction.commit();
            case "rollback" -> transaction.rollback();
            default -> { }
        }
        return receipt;
    }

    private JsonObject recall(JsonObject command) throws Exception {
        var receipt = client(command, Producer.class)
            .recallMessage(Wire.text(command, "topic"), Wire.text(command, "recall_handle"));
        JsonObject answer = new JsonObject();
        answer.addProperty("message_id", receipt.getMessageId().toString());
        return answer;
    }

    private JsonObject receive(JsonObject command) throws Exception {
        Duration invisible = Duration.ofMillis(command.get("invisible_ms").getAsLong());
        int max = command.get("max").getAsInt();
        JsonArray messages = new JsonArray();
        for (MessageView view : client(command, SimpleConsumer.class).receive(max, invisible)) {
            String name = "m" + received.incrementAndGet();
            held.put(name, view);
            JsonObject message = Wire.message(view);
            message.addProperty("held", name);
            messages.add(message);
        }
        JsonObject answer = new JsonObject();
        answer.add("messages", messages);
        return answer;
    }

    private void change(JsonObject command) throws Exception {
        Duration invisible = Duration.ofMillis(command.get("invisible_ms").getAsLong());
        client(command, SimpleConsumer.class)
            .changeInvisibleDuration(held.get(Wire.text(command, "held")), invisible);
    }
}
