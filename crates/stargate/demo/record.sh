# Makes a small video to cut: a test picture with a clock, and a tone.
exec ffmpeg -nostdin -v error -y \
    -f lavfi -i testsrc2=size=320x180:rate=25:duration=12 -f lavfi -i sine=frequency=440:duration=12 \
    -c:v mpeg4 -g 25 -c:a aac -shortest recording.mp4
