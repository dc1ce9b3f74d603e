"""Sends messages to a running Annie over gRPC, and learns the contract by reflection alone, as grpcurl would.

    pip install grpcio grpcio-reflection protobuf
    python tests/clients/grpc_check.py 127.0.0.1:8780 [KEY]

Prints one line for each check that passed; a wrong answer is an exception and exit code 1.
"""

import sys

import grpc
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase


class Authorized(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor,
                 grpc.StreamStreamClientInterceptor):
    """Sends the key with every call."""

    def __init__(self, key: str) -> None:
        self.key = key

    def _send(self, proceed, details, request):
        metadata = list(details.metadata or []) + [("authorization", f"Bearer {self.key}")]
        return proceed(details._replace(metadata=metadata), request)

    intercept_unary_unary = intercept_unary_stream = intercept_stream_stream = _send


class Caller:
    """Calls methods by their names."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.channel = channel
        self.database = ProtoReflectionDescriptorDatabase(channel)
        self.pool = DescriptorPool(self.database)

    def call(self, service: str, method: str, /, **fields):
        described = self.pool.FindServiceByName(service).methods_by_name[method]
        request, response = GetMessageClass(described.input_type), GetMessageClass(described.output_type)
        make = self.channel.unary_stream if described.server_streaming else self.channel.unary_unary
        call = make(f"/{service}/{method}", request.SerializeToString, response.FromString)
        return call(request(**fields), timeout=60)


def main() -> None:
    channel = grpc.insecure_channel(sys.argv[1])
    if len(sys.argv) > 2:
        channel = grpc.intercept_channel(channel, Authorized(sys.argv[2]))
    caller = Caller(channel)
    services = sorted(caller.database.get_services())
    assert {"annie.v1.Chat", "annie.v1.Jobs", "annie.v1.Actors", "grpc.health.v1.Health"} <= set(services), services
    print(f"reflection: {services}")

    health = caller.call("grpc.health.v1.Health", "Check", service="annie.v1.Chat")
    assert health.status == 1
    print("health: serving")

    submitted = caller.call("annie.v1.Chat", "Submit", text="Create a task to call Bob, and then tell me what is due")
    print(f"submit: {submitted.task_id} in {submitted.conversation_id}, position {submitted.position}")
    stream = dict(conversation_id=submitted.conversation_id, task_id=submitted.task_id)
    kinds = [item.event.kind for item in caller.call("annie.v1.Chat", "Stream", **stream) if item.HasField("event")]
    assert kinds[0] == "received" and kinds[-1] == "answered", kinds
    rest = caller.call("annie.v1.Chat", "Stream", after_seq=2, **stream)
    assert [item.event.kind for item in rest if item.HasField("event")] == kinds[2:]
    print(f"stream: {kinds}, and resumed after 2 without a gap")

    history = caller.call("annie.v1.Chat", "History", conversation_id=submitted.conversation_id).messages
    print(f"history: {[(m.role, m.text) for m in history]}")
    print(f"agents: {[(a.agent, a.status) for a in history[1].agents]}, {[s.skill for s in history[1].skills]}")
    print(f"skills: {[skill.name for skill in caller.call('annie.v1.Skills', 'List').skills]}")
    print(f"tree: {caller.call('annie.v1.Actors', 'Tree').total} actors")

    for what, code, call in [
        ("empty message", grpc.StatusCode.INVALID_ARGUMENT, lambda: caller.call("annie.v1.Chat", "Submit", text=" ")),
        ("unknown task", grpc.StatusCode.NOT_FOUND,
         lambda: caller.call("annie.v1.Jobs", "Get", task_id="task_" + "0" * 32)),
    ]:
        try:
            call()
        except grpc.RpcError as error:
            assert error.code() == code, error
            print(f"error, {what}: {error.code().name}: {error.details()}")
        else:
            raise AssertionError(f"{what} was not refused")


main()
