"""Each order that was committed has a message, and no other message is seen. Needs SQLAlchemy.

popmq serve, then: python examples/outbox.py DATABASE    a path for SQLite, or postgresql+psycopg://…
"""

import sys

from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

import popmq


class Base(DeclarativeBase): ...


class Order(Base):
    __tablename__ = "orders"
    number: Mapped[int] = mapped_column(primary_key=True)


def place_order(session: Session, outbox: popmq.Outbox, number: int) -> None:
    with session.begin(), outbox(session) as box:
        session.add(Order(number=number))
        box.send("placed-orders", popmq.Message.json({"order": number}))
        if number % 3 == 0:
            raise ValueError("sold out")  # rolls back both


if __name__ == "__main__":
    engine = create_engine(sys.argv[1] if "://" in sys.argv[1] else f"sqlite:///{sys.argv[1]}")
    Base.metadata.create_all(engine)
    with popmq.Client() as client, popmq.Outbox(client, engine) as outbox, Session(engine) as session:
        client.topics.create("placed-orders", queues=1, type="TRANSACTION")
        outbox.answer("placed-orders")  # also for processes that were killed
        for number in range(1, 11):
            try:
                place_order(session, outbox, number)
            except ValueError as error:
                print(number, error)
    engine.dispose()
