"""The wire protocol without IO. The package loads nothing by itself, so import its modules:

apis        the table of APIs: keys, versions, message types, header versions
requests    requests and responses with their headers
frames      the sizes before them, in any chunking
codec       messages to bytes and back
messages    the message types, one module per message
json_form   Kafka's JSON form of messages
schema      the facts from which all of this is derived
errors      the errors of messages
"""
