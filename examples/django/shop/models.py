"""Orders."""

from django.db import models


class Order(models.Model):
    number = models.IntegerField(unique=True)
    invoice = models.TextField(blank=True)
