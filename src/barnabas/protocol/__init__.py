"""The wire protocol without IO. What is not used is not loaded, so import the modules:

apis        the table of APIs: keys, versions, message types, header versions
requests    requests and responses with their headers
frames      the sizes before them, in any chunking
codec       messages to bytes and back
messages    the message types, one module a message
json_form   Kafka's JSON form of messages
schema      the facts that all of this is made of
errors      what can be wrong with a message
"""
