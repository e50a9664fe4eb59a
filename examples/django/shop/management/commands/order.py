"""Places orders: each row and its task are one transaction."""

from django.core.management.base import BaseCommand
from django.db import transaction

from shop.models import Order
from shop.tasks import write_invoice


class Command(BaseCommand):
    def add_arguments(self, parser):
        parser.add_argument("numbers", nargs="+", type=int)

    def handle(self, *_, numbers, **__):
        for number in numbers:
            with transaction.atomic():
                Order.objects.create(number=number)
                result = write_invoice.enqueue(number)
            self.stdout.write(f"order {number}: task {result.id}")
