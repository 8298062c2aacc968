"""reward-ocr: is the wanted text written in the picture or clip?

    card        the declaration
    folder      the models that come with RapidOCR, or others of their kind; which releases read with them
    components  loading
    distance    how far what was read is from what was wanted
    program     the scorer

RapidOCR and ONNX Runtime are an optional extra, imported only where text is read.
"""
