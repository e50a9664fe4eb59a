package dev.popmq.examples;

import com.google.protobuf.Any;
import com.google.protobuf.ByteString;
import com.google.protobuf.InvalidProtocolBufferException;
import dev.popmq.v1.AckRequest;
import dev.popmq.v1.AckResponse;
import dev.popmq.v1.AdminGrpc;
import dev.popmq.v1.BrokerGrpc;
import dev.popmq.v1.ChangeInvisibleTimeRequest;
import dev.popmq.v1.ChangeInvisibleTimeResponse;
import dev.popmq.v1.CreateGroupRequest;
import dev.popmq.v1.CreateTopicRequest;
import dev.popmq.v1.Delivery;
import dev.popmq.v1.ErrorInfo;
import dev.popmq.v1.Extend;
import dev.popmq.v1.Group;
import dev.popmq.v1.InvisibleTimeChange;
import dev.popmq.v1.Message;
import dev.popmq.v1.PopRequest;
import dev.popmq.v1.PopResponse;
import dev.popmq.v1.SendRequest;
import dev.popmq.v1.SendResponse;
import dev.popmq.v1.Topic;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.StatusRuntimeException;
import io.grpc.protobuf.StatusProto;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;

/** Send, pop, extend, ack, and read an error, with nothing but stubs made from the contract. */
public final class Quickstart {
  private static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);

  private final BrokerGrpc.BrokerBlockingStub broker;
  private final AdminGrpc.AdminBlockingStub admin;
  private final String topic;
  private final String group;

  private Quickstart(ManagedChannel channel, String topic, String group) {
    this.broker = BrokerGrpc.newBlockingStub(channel).withDeadlineAfter(30, TimeUnit.SECONDS);
    this.admin = AdminGrpc.newBlockingStub(channel).withDeadlineAfter(30, TimeUnit.SECONDS);
    this.topic = topic;
    this.group = group;
  }

  /** Arguments: [ENDPOINT [TOPIC [GROUP]]]. */
  public static void main(String[] args) throws Exception {
    String endpoint = args.length > 0 ? args[0] : "127.0.0.1:8081";
    String topic = args.length > 1 ? args[1] : "greetings";
    String group = args.length > 2 ? args[2] : "java";
    ManagedChannel channel =
        Grpc.newChannelBuilder(endpoint, InsecureChannelCredentials.create())
            .maxInboundMessageSize(20 << 20) // a Pop may ask for 16 MiB; the default is 4
            .build();
    try {
      new Quickstart(channel, topic, group).run();
    } finally {
      channel.shutdownNow();
    }
  }

  private void run() throws InvalidProtocolBufferException {
    // Both calls succeed when the topic and the group exist with these settings.
    admin.createTopic(CreateTopicRequest.newBuilder().setTopic(Topic.newBuilder().setName(topic)).build());
    admin.createGroup(CreateGroupRequest.newBuilder().setGroup(Group.newBuilder().setName(group)).build());
    send();
    while (handleOnce() > 0) {}
    try {
      broker.pop(PopRequest.newBuilder().setTopic("no-such-topic").setGroup(group).build());
      throw new IllegalStateException("a topic that is not there was popped");
    } catch (StatusRuntimeException refused) {
      tell(refused);
    }
  }

  private void send() {
    SendRequest.Builder request = SendRequest.newBuilder().setTopic(topic);
    for (String word : List.of("one", "two", "drei – ✓")) {
      request.addMessages(
          Message.newBuilder()
              .setBody(ByteString.copyFromUtf8("java " + word))
              .setTag("hello")
              .addKeys(word)
              .putProperties("language", "java")
              .setBornMs(System.currentTimeMillis()));
    }
    SendResponse answer = broker.send(request.build());
    answer.getResultsList().forEach(result -> check(result.hasError(), result.getError())); // an entry fails alone
    OUT.printf(
        "sent %d to queue %d from offset %d%n",
        answer.getResultsCount(), answer.getResults(0).getQueue(), answer.getResults(0).getOffset());
  }

  /** Handles one batch: takes more time for it, does the work, and finishes it; returns the number of messages. */
  private int handleOnce() {
    PopResponse batch =
        broker.pop(
            PopRequest.newBuilder()
                .setTopic(topic)
                .setGroup(group)
                .setMaxMessages(32)
                .setWaitMs(500)
                .setInvisibleMs(5_000)
                .build());
    List<String> handles = new ArrayList<>();
    batch.getDeliveriesList().forEach(delivery -> handles.add(delivery.getHandle()));
    if (handles.isEmpty()) {
      return 0;
    }
    OUT.printf("extended %d by %d ms%n", handles.size(), extend(handles, 60_000) - batch.getInvisibleUntilMs());
    for (Delivery delivery : batch.getDeliveriesList()) {
      Message message = delivery.getMessage();
      OUT.printf(
          "popped attempt %d: %s %s%n",
          delivery.getAttempt(), message.getBody().toStringUtf8(), message.getPropertiesMap());
    }
    AckResponse acked = broker.ack(AckRequest.newBuilder().setGroup(group).addAllHandles(handles).build());
    acked.getResultsList().forEach(result -> check(result.hasError(), result.getError())); // empty: all succeeded
    OUT.printf("acked %d%n", handles.size());
    return handles.size();
  }

  /** Ends the leases of these deliveries so long from now, and returns when that is. */
  private long extend(List<String> handles, long invisibleMs) {
    ChangeInvisibleTimeRequest.Builder request = ChangeInvisibleTimeRequest.newBuilder().setGroup(group);
    for (String handle : handles) {
      request.addChanges(
          InvisibleTimeChange.newBuilder()
              .setHandle(handle)
              .setExtend(Extend.newBuilder().setInvisibleMs(invisibleMs)));
    }
    ChangeInvisibleTimeResponse answer = broker.changeInvisibleTime(request.build());
    answer.getResultsList().forEach(result -> check(result.hasError(), result.getError()));
    return answer.getResults(answer.getResultsCount() - 1).getVisibleMs();
  }

  /** Prints why a call was refused: the details of a google.rpc.Status hold a popmq.v1.ErrorInfo. */
  private static void tell(StatusRuntimeException refused) throws InvalidProtocolBufferException {
    for (Any detail : StatusProto.fromThrowable(refused).getDetailsList()) {
      if (detail.is(ErrorInfo.class)) {
        ErrorInfo info = detail.unpack(ErrorInfo.class);
        OUT.printf(
            "refused %s %s field=%s retryable=%b: %s%n",
            refused.getStatus().getCode(), info.getCode(), info.getField(), info.getRetryable(), info.getMessage());
        OUT.printf("advice %s%n", info.getAction());
        return;
      }
    }
    throw new IllegalStateException("an answer without popmq.v1.ErrorInfo", refused);
  }

  private static void check(boolean refused, ErrorInfo info) {
    if (refused) {
      throw new IllegalStateException(info.getCode() + ": " + info.getMessage());
    }
  }
}
