"""What is done for an order after it was placed."""

try:
    from django.tasks import task
except ImportError:  # Django 5.2
    from django_tasks import task

from shop.models import Order


@task()
def write_invoice(number: int) -> str:
    """May run twice, if its worker dies before it has told the broker: so it writes the same again."""
    order = Order.objects.get(number=number)
    order.invoice = f"invoice of order {number}"
    order.save()
    return order.invoice
