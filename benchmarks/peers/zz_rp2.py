import sys,time; sys.path.insert(0,'/work/main/benchmarks/peers')
w0=time.time()
import torch; torch.set_num_threads(2)
from rllib_run import *
from ray.rllib.algorithms.ppo import PPOConfig
n,mode=int(sys.argv[1]),sys.argv[2]
algo=build(PPOConfig().env_runners(num_env_runners=n,num_envs_per_env_runner=64//max(n,1),gym_env_vectorize_mode=mode).learners(num_learners=0).training(train_batch_size_per_learner=8192,minibatch_size=2048,num_epochs=4,lr=3e-4,gamma=.99,lambda_=.95,use_kl_loss=False,grad_clip=.5).rl_module(model_config=NETWORKS))
c0=time.process_time(); 
for i in range(1,9):
    w=time.time(); r=algo.train()
print(i,"cpu/iter",round((time.process_time()-c0)/8,2),{k:round(v,2) for k,v in r["timers"].items() if "sampl" in k or "learner_update" in k or k=="training_step"},flush=True)
