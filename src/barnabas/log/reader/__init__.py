"""Reads log directories without a broker, while one may write to them: the public reader of other rooms."""
