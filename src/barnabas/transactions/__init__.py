"""Transactions as a machine: a request and the time go in; records, replies, timers and markers come out."""
