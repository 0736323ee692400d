
import torch, json
from bench_checksum import seconds
from burnin import checksum as cs
from burnin.kernels import checksum as kc, fill as kf
from burnin.seed import fill_bits, fill_normal, fill_integers
src=torch.empty(4<<30,dtype=torch.uint8,device="cuda"); fill_bits(src,1)
bf=src[:2*8192*8192].view(torch.bfloat16).view(8192,8192)
t=torch.zeros(4096,dtype=torch.int64,device="cuda"); slot=t[:1]
for rows in (8,16,32,64):
    for w in (2,4,8):
        kc.ROWS=rows; kc.TILE_WARPS=w
        f=lambda: cs.tile_sums_into(t,bf,3)
        seconds(f,2); x=sorted(seconds(f,30) for _ in range(7))
        print("tile",rows,w,f"{x[3]*1e6:.1f} us {bf.nbytes/x[3]/1e12:.2f} TB/s")
kc.ROWS=32;kc.TILE_WARPS=4
for b in (2048,4096,8192):
    kc.BLOCK=b
    f=lambda: cs.checksum_into(slot,src,3)
    seconds(f,2); x=sorted(seconds(f,5) for _ in range(7)); print("flat",b,f"{src.nbytes/x[3]/1e12:.2f} TB/s")
kc.BLOCK=4096
o=torch.empty_like(bf)
for b in (1024,2048,4096):
    kf.BLOCK=b
    for n,f in (("normal",lambda: fill_normal(o,5)),("int",lambda: fill_integers(o,5,45))):
        seconds(f,2); x=sorted(seconds(f,30) for _ in range(7)); print("fill",n,b,f"{x[3]*1e6:.1f} us")
f=lambda: o.copy_(bf)
x=sorted(seconds(f,30) for _ in range(7)); print("copy128",f"{x[3]*1e6:.1f} us")
