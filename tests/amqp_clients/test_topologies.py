"""The three shapes that the documentation shows: work shared out, copies for all, and patterns."""

from __future__ import annotations

import pytest

from .brokers import Broker
from .pika_client import Inbox, opened, publish

pytestmark = pytest.mark.real


def test_load_balancing_gives_each_message_to_one_of_the_workers(broker: Broker, name: str) -> None:
    with opened(broker) as producer, opened(broker) as first, opened(broker) as second:
        producer.queue_declare(name, durable=True)
        workers = [Inbox(first), Inbox(second)]
        for worker in workers:
            worker.channel.basic_qos(prefetch_count=1)
            worker.consume(name)
        publish(producer, name, *(b"video-%d" % each for each in range(20)), delivery_mode=2)
        done: list[tuple[Inbox, bytes]] = []
        while len(done) < 20:
            for worker in workers:
                worker.channel.connection.process_data_events(0.01)
                if worker.deliveries:
                    job = worker.deliveries.pop()
                    done.append((worker, job.body))
                    worker.channel.basic_ack(job.tag)
        assert sorted(body for _worker, body in done) == sorted(b"video-%d" % each for each in range(20))
        assert {id(worker) for worker, _body in done} == {id(worker) for worker in workers}
        producer.queue_delete(name)


def test_fan_out_gives_each_message_to_every_subscriber(broker: Broker, name: str) -> None:
    with opened(broker) as producer:
        producer.exchange_declare(name, "fanout", durable=True)
        with opened(broker) as first, opened(broker) as second:
            subscribers = [Inbox(first), Inbox(second)]
            for subscriber in subscribers:
                queue = subscriber.channel.queue_declare("", exclusive=True).method.queue
                subscriber.channel.queue_bind(queue, name)
                subscriber.consume(queue, auto_ack=True)
            publish(producer, "", b"a new post", b"another", exchange=name)
            assert [subscriber.bodies(2) for subscriber in subscribers] == [[b"a new post", b"another"]] * 2
        producer.exchange_delete(name)


def test_both_together_share_each_copy_among_the_workers_of_a_group(broker: Broker, name: str) -> None:
    with opened(broker) as producer, opened(broker) as one, opened(broker) as two, opened(broker) as three:
        producer.exchange_declare(name, "fanout", auto_delete=True)
        mailing, audit = f"{name}-mailing", f"{name}-audit"
        for queue in (mailing, audit):
            producer.queue_declare(queue, auto_delete=True)
            producer.queue_bind(queue, name)
        mailers, auditor = [Inbox(one), Inbox(two)], Inbox(three)
        for mailer in mailers:
            mailer.consume(mailing, auto_ack=True)
        auditor.consume(audit, auto_ack=True)
        publish(producer, "", *(b"%d" % each for each in range(10)), exchange=name)
        assert [mailer.bodies(5) for mailer in mailers] == [
            [b"%d" % each for each in range(first, 10, 2)] for first in range(2)
        ]
        assert auditor.bodies(10) == [b"%d" % each for each in range(10)]


def test_pattern_subscriptions_give_each_subscriber_what_it_asked_for(broker: Broker, name: str) -> None:
    wanted = {
        "kern.*": [b"kern.info", b"kern.critical"],
        "*.critical": [b"kern.critical", b"cron.critical"],
        "#": [b"kern.info", b"kern.critical", b"cron.critical", b"cron"],
    }
    with opened(broker) as producer, opened(broker) as reader:
        producer.exchange_declare(name, "topic", auto_delete=True)
        subscribers = {}
        for pattern in wanted:
            queue = reader.queue_declare("", exclusive=True).method.queue
            reader.queue_bind(queue, name, pattern)
            subscribers[pattern] = Inbox(reader)
            subscribers[pattern].consume(queue, auto_ack=True)
        for key in ("kern.info", "kern.critical", "cron.critical", "cron"):
            publish(producer, key, key, exchange=name)
        assert {each: subscribers[each].bodies(len(wanted[each])) for each in wanted} == wanted
        assert all(inbox.quiet() for inbox in subscribers.values())
