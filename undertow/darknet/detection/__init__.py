"""From the outputs of heads to boxes on pictures: decoding, suppression, evaluation, drawing."""
