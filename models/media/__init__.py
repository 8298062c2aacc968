"""Pixel operations as cards without weights, so that every picture and clip in a workflow comes from a run.

    card    the declarations: video-frame, video-join, contact-sheet, line-charts, picture-statistics; no
            torch
    frame   one frame of a clip as a picture
    join    clips one after another
    sheet   pictures in labelled rows and columns
    chart   numbers as lines in labelled panels; axes: where its ticks lie
    statistics  how varied, sharp, colourful and dark pictures are
    layout  where a sheet's pictures and labels lie
    pixels  clips as frames

They run on the host, on NumPy and Pillow, and draw nothing at random: equal inputs share one run for ever.
"""
